"""A cluster with users, by the programs that people use: roles, owners, an admin who acts for a user, and the audit trail, which a
killed coordinator continues and a second implementation verifies."""

import json
import pathlib
import random
import signal
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import audit_chain  # noqa: E402
from cluster import run, wait_until  # noqa: E402
from tls_cluster import TlsCluster  # noqa: E402

ERROR, BAD_USAGE, NOT_ALLOWED, CONFLICT, NO_ROOM = 1, 2, 4, 6, 8  # exit codes
QUEUES = "queues: {default: , nlp: , vision: }\n"
USERS = """users: {ada: , bob: , eve: {disabled: true}}
roles:
  - {role: submitter, queues: [nlp], users: [ada, bob, eve]}
  - {role: viewer, queues: [vision], users: [bob]}
"""


class ClusterWithUsers(TlsCluster):
    def __init__(self, test, queues=QUEUES, **options):
        super().__init__(test, **options)
        for text, group in ((queues, "queues"), (USERS, "users")):
            file = self.path(f"{group}.yaml")
            file.write_text(text, encoding="utf-8")
            self.muster(group, "apply", file)
        self.people = {name: self.issue(name) for name in ("ada", "bob", "eve", "mallory")}

    def issue(self, name):
        out = self.path(f"certificate-{name}")
        run("muster", "certs", "issue", "--dir", self.dir, "--role", "user", "--name", name, "--out", out)
        return out

    def by(self, name, *words, check=True, **options):
        return self.muster(*words, credentials=self.people[name], check=check, **options)

    def job(self, name, queue="nlp", script="sleep 600"):
        workdir = self.path(f"work-{name}")
        workdir.mkdir(exist_ok=True)
        file = self.path(f"{name}.json")
        file.write_text(json.dumps({"name": name, "workdir": str(workdir), "command": ["sh", "-c", script], "queue": queue,
                                    "resources": {"nodes": 1, "ranks_per_node": 1}}), encoding="utf-8")
        return file

    def submit_by(self, name, *words, **options):
        return json.loads(self.by(name, "submit", "-o", "json", self.job(*words), **options).stdout)["id"]

    def export(self, name):
        file = self.path(name)
        done = self.muster("audit", "export", "--to", file, "-o", "json")
        return file, json.loads(done.stdout)["head"]

    def kill_coordinator(self):
        coordinator = self.daemons[0]
        coordinator.send_signal(signal.SIGKILL)
        coordinator.wait(timeout=60)

    def restart_coordinator(self):
        address = self.endpoint["grpc_tls"]
        doors = ["--tls-listen", address, "--tls-http", self.endpoint["http_tls"], "--join-listen", self.endpoint["grpc_join"]]
        self.daemons[0] = self.start("coordinator", "muster-coordinator", "--dir", self.dir, *doors)
        self.daemons.pop()
        wait_until(lambda: self.muster("version", check=False).returncode == 0, "the coordinator answers")


class Users(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClusterWithUsers(None, nodes=1, slots=4)
        cls.addClassCleanup(cls.cluster.close)

    def refused(self, done, code, *parts):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_everyone_is_told_who_the_coordinator_takes_them_for(self):
        me = json.loads(self.cluster.by("bob", "whoami", "-o", "json").stdout)
        self.assertEqual((me["name"], me["kind"], me["cluster"]), ("bob", "user", "lab"))
        self.assertEqual(me["roles"], [{"role": "submitter", "queue": "nlp"}, {"role": "viewer", "queue": "vision"}])
        self.assertIn("user ada in cluster lab\nroles: submitter in nlp", self.cluster.by("ada", "whoami").stdout)
        self.assertIn("(disabled)", self.cluster.by("eve", "whoami").stdout)
        self.assertIn("roles: none", self.cluster.by("mallory", "whoami").stdout)
        self.assertIn("admin admin in cluster lab", self.cluster.muster("whoami").stdout)

    def test_a_user_runs_a_job_that_others_in_the_queue_see_and_do_not_touch(self):
        job = self.cluster.submit_by("ada", "hers")
        wait_until(lambda: self.cluster.get(job)["state"] == "running", "it runs")
        listed = json.loads(self.cluster.by("bob", "get", "--owner", "ada", "--queue", "nlp", "-o", "json").stdout)
        self.assertEqual([(each["id"], each["owner"], each["submitter"]) for each in listed], [(job, "ada", "ada")])
        self.refused(self.cluster.by("bob", "cancel", job, check=False), NOT_ALLOWED, "bob may not cancel jobs of other users: that needs the role operator in queue nlp",
                     "muster whoami")
        self.refused(self.cluster.by("eve", "cancel", job, check=False), NOT_ALLOWED, "user eve is disabled")
        # mallory hears the same of a job that others have as of one that there never was.
        answers = {self.cluster.by("mallory", "get", each, check=False).stderr.replace(each, "ID") for each in (job, "0123456789")}
        self.assertEqual(len(answers), 1, answers)
        self.refused(self.cluster.by("ada", "submit", self.cluster.job("else", "vision"), check=False), NOT_ALLOWED,
                     "ada may not submit jobs", "in queue vision")
        self.cluster.by("ada", "cancel", job)
        self.assertIn("cancelled by ada", self.cluster.by("bob", "describe", job).stdout)

    def test_an_admin_acts_for_a_user_with_that_users_rights(self):
        done = self.cluster.muster("submit", "-o", "json", "--as", "ada", self.cluster.job("for-ada"))
        job = self.cluster.get(json.loads(done.stdout)["id"])
        self.assertEqual((job["owner"], job["submitter"]), ("ada", "admin"))
        self.refused(self.cluster.muster("submit", "--as", "ada", self.cluster.job("not-for-ada", "vision"), check=False), NOT_ALLOWED,
                     "admin for ada may not submit jobs")
        self.refused(self.cluster.muster("get", "--as", "nobody", check=False), NOT_ALLOWED, "no user 'nobody'")
        self.refused(self.cluster.by("ada", "get", "--as", "bob", check=False), NOT_ALLOWED, "only an admin")
        self.cluster.by("ada", "cancel", job["id"])

    def test_a_file_that_is_wrong_or_was_overtaken_changes_nothing(self):
        file = self.cluster.path("bad.yaml")
        file.write_text("users: {ada: }\nroles: [{role: submitter, queues: [nlq], users: [ada]}]\n", encoding="utf-8")
        self.refused(self.cluster.muster("users", "apply", file, check=False), BAD_USAGE, "nlq", "did you mean 'nlp'?")
        file.write_text(USERS.replace("bob: ,", ""), encoding="utf-8")
        self.refused(self.cluster.muster("users", "check", file, check=False), BAD_USAGE, "bad.yaml:3", "'bob' is not among the users")
        file.write_text(USERS + "# again\n", encoding="utf-8")
        self.refused(self.cluster.muster("users", "apply", "--version", 0, file, check=False), CONFLICT, "another file was applied")
        self.assertIn("would change nothing", self.cluster.muster("users", "check", file).stdout)
        self.assertEqual(self.cluster.muster("users", "show", "-o", "yaml").stdout, USERS)
        self.refused(self.cluster.by("ada", "users", "show", check=False), NOT_ALLOWED, "needs the role admin in the whole cluster")

    def test_the_token_of_the_machine_admits_nobody(self):
        done = run("muster", "get", "--dir", self.cluster.dir, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("admits nobody by its token", done.stderr)


class LimitsOfUsers(unittest.TestCase):
    def test_a_user_is_told_what_one_user_may_have_and_sees_what_was_had(self):
        limits = QUEUES.replace("nlp: ", "nlp: {per_user: {slots: 2, running: 1, queued: 2}}")
        cluster = ClusterWithUsers(self, queues=limits, nodes=1, slots=4)
        self.assertIn("2 slots, 1 running, 2 queued", cluster.by("ada", "queues", "show", "-o", "wide").stdout)
        runs = cluster.submit_by("ada", "runs")
        waits, _ = [cluster.submit_by("ada", name) for name in ("waits", "too")]
        said = "ada has 1 of the 1 running job that one user may have in queue nlp"
        wait_until(lambda: said in cluster.by("bob", "describe", waits).stdout, "it waits")
        self.assertIn(f"\n  {said}\n", cluster.by("ada", "explain", waits).stdout)
        refusal = "ada has 2 jobs that wait in queue nlp, and one user may have 2 there"
        for submit in (cluster.by("ada", "submit", cluster.job("more"), check=False),
                       cluster.muster("submit", "--as", "ada", cluster.job("for-ada"), check=False),
                       cluster.by("ada", "plan", cluster.job("planned"), check=False)):
            self.assertEqual(submit.returncode, NO_ROOM, submit.stdout + submit.stderr)
            self.assertIn(refusal, submit.stderr)
            self.assertIn("next: submit again when one has started", submit.stderr)
        large = json.loads(cluster.job("large").read_text(encoding="utf-8"))
        large["resources"]["ranks_per_node"] = 3
        cluster.path("large.json").write_text(json.dumps(large), encoding="utf-8")
        done = cluster.by("bob", "submit", cluster.path("large.json"), check=False)
        self.assertEqual(done.returncode, NO_ROOM)
        self.assertIn("the job needs 3 slots, more than the 2 slots that one user may have in queue nlp", done.stderr)
        bobs = cluster.submit_by("bob", "his")
        for job in (runs, bobs):
            wait_until(lambda job=job: cluster.get(job)["state"] == "running", "both run")
        cluster.by("ada", "cancel", runs)
        wait_until(lambda: cluster.get(waits)["state"] == "running", "the next one starts")

        def usage(name, *words):
            return json.loads(cluster.by(name, "usage", "-o", "json", *words).stdout)
        wait_until(lambda: {row["user"] for row in usage("bob", "--by", "user")} == {"ada", "bob"}, "both have had something")
        rows = usage("ada", "--user", "ada")
        self.assertEqual({(row["queue"], row["user"]) for row in rows}, {("nlp", "ada")})
        self.assertNotIn("user", usage("ada")[0])
        self.assertIn("QUEUE  USER  GPU-HOURS", cluster.by("ada", "usage", "--by", "user").stdout)
        self.assertIn(",nlp,bob,", cluster.by("ada", "usage", "--by", "user", "--csv").stdout)


class AuditTrail(unittest.TestCase):
    def test_every_damage_is_found_by_both_implementations(self):
        cluster = ClusterWithUsers(self, nodes=0)
        for index in range(6):
            cluster.submit_by("ada", f"job-{index}")
        early, kept = cluster.export("early.jsonl")
        for index in range(6):
            cluster.by("bob", "cancel", f"job-{index}", check=False)
        whole, head = cluster.export("whole.jsonl")
        lines = whole.read_text(encoding="utf-8").splitlines()
        self.assertEqual(lines[:len(early.read_text(encoding="utf-8").splitlines())], early.read_text(encoding="utf-8").splitlines())
        self.assertEqual(audit_chain.verify(lines, kept), head)
        self.assertIn(f"head {head}", cluster.muster("audit", "verify", "--head", kept).stdout)
        refusals = [json.loads(line) for line in lines if '"PERMISSION_DENIED"' in line]
        self.assertEqual({(e["actor"], e["operation"]) for e in refusals}, {("user/bob", "Cancel")})
        tail = json.loads(cluster.muster("audit", "tail", "-n", 3, "-o", "json").stdout)
        self.assertEqual([e["seq"] for e in tail], [len(lines) - 2, len(lines) - 1, len(lines)])
        chance = random.Random(4)
        spoil = {
            "edited": lambda l: l[:4] + [l[4].replace("ada", "bob")] + l[5:],
            "reordered": lambda l: l[:4] + [l[5], l[4]] + l[6:],
            "cut out": lambda l: l[:4] + l[5:],
            "truncated": lambda l: l[:-2],
            "without its tail": lambda l: l[:int(kept.split(":")[0]) - 1],
            "empty": lambda l: [],
            "a letter": lambda l: l[:7] + [l[7][:50] + chr(ord(l[7][50]) ^ 1) + l[7][51:]] + l[8:],
            "half a line": lambda l: l[:-1] + [l[-1][:chance.randrange(10, 100)]],
        }
        for what, damage in spoil.items():
            with self.subTest(what):
                damaged = cluster.path(f"{what}.jsonl".replace(" ", "-"))
                damaged.write_text("".join(line + "\n" for line in damage(lines)), encoding="utf-8")
                done = cluster.muster("audit", "verify", "--head", head, damaged, check=False)
                self.assertEqual(done.returncode, ERROR, done.stdout + done.stderr)
                with self.assertRaises(audit_chain.Broken):
                    audit_chain.verify(damage(lines), head)
        self.assertIn("is there already", cluster.muster("audit", "export", "--to", whole, check=False).stderr)

    def test_no_mutation_is_without_its_entry_when_the_coordinator_is_killed(self):
        """In both directions: what was acknowledged has an entry, and an entry of a success has its job."""
        cluster = ClusterWithUsers(self, nodes=0)
        acknowledged, chance = [], random.Random(11)
        for life in range(5):
            stop = threading.Event()

            def submit(life=life, stop=stop):
                for index in range(1000):
                    if stop.is_set():
                        return
                    done = cluster.by("ada", "submit", "-o", "json", "--key", f"{life}-{index}",
                                      cluster.job(f"life-{life}-{index}"), check=False, timeout=20)
                    if done.returncode == 0:
                        acknowledged.append(json.loads(done.stdout)["id"])
            thread = threading.Thread(target=submit)
            thread.start()
            before = len(acknowledged)
            wait_until(lambda before=before: len(acknowledged) > before + chance.randrange(1, 4), "some are acknowledged")
            cluster.kill_coordinator()
            stop.set()
            cluster.restart_coordinator()
            thread.join(timeout=60)
        file, head = cluster.export("killed.jsonl")
        lines = file.read_text(encoding="utf-8").splitlines()
        self.assertEqual(audit_chain.verify(lines), head)
        submits = [e["object"].removeprefix("job ") for e in map(json.loads, lines)
                   if (e["operation"], e["outcome"]) == ("Submit", "OK")]
        jobs = {job["id"] for job in json.loads(cluster.muster("get", "--all", "-o", "json").stdout)}
        self.assertLessEqual(set(acknowledged), set(submits))
        self.assertEqual(set(submits), jobs)


if __name__ == "__main__":
    unittest.main()
