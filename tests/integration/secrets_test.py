"""Secrets of jobs: stored, given to the ranks of their owner's jobs, and to be found nowhere else, which a scan for a canary shows."""

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, kill, processes_of, run, wait_until  # noqa: E402
from tls_cluster import TlsCluster  # noqa: E402

BAD_USAGE, NOT_ALLOWED, NOT_FOUND, CONFLICT = 2, 4, 3, 6  # exit codes
USERS = """users: {ada: , bob: }
roles: [{role: submitter, queues: [research], users: [ada, bob]}]
"""
QUEUES = "queues: {default: , research: {queues: {nlp: , vision: }}}\n"


class Secrets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = TlsCluster(None, nodes=1, slots=2)
        cls.addClassCleanup(cls.cluster.close)
        for text, group in ((QUEUES, "queues"), (USERS, "users")):
            file = cls.cluster.path(f"{group}.yaml")
            file.write_text(text, encoding="utf-8")
            cls.cluster.muster(group, "apply", file)
        cls.people = {}
        for name in ("ada", "bob"):
            cls.people[name] = cls.cluster.path(f"certificate-{name}")
            run("muster", "certs", "issue", "--dir", cls.cluster.dir, "--role", "user", "--name", name, "--out", cls.people[name])

    def by(self, name, *words, value=None, check=True):
        command = [BIN / "muster", *words, "--coordinator", self.cluster.endpoint["grpc_tls"], "--tls", self.people[name], "--dir",
                   self.cluster.path("none")]
        done = subprocess.run(list(map(str, command)), input=value, text=True, capture_output=True, timeout=60)
        if check:
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def store(self, name, secret, value, queue="nlp"):
        return self.by(name, "secret", "set", secret, "--queue", queue, value=value)

    def submit(self, name, script, secrets, queue="nlp", check=True, **more):
        work = self.cluster.path(f"work-{uuid.uuid4().hex[:8]}")
        work.mkdir()
        file = work / "job.json"
        file.write_text(json.dumps({"name": "job", "workdir": str(work), "command": ["sh", "-c", script], "queue": queue, "secrets": secrets,
                                    "resources": {"nodes": 1, "ranks_per_node": 1}, **more}), encoding="utf-8")
        done = self.by(name, "submit", "-o", "json", file, check=check)
        return (json.loads(done.stdout)["id"], work) if check else done

    def wait(self, job, code=0):
        done = self.cluster.muster("wait", job, "--timeout", "60s", check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr + self.cluster.muster("events", job).stdout)

    def test_ranks_get_variables_and_files_and_nobody_else_gets_anything(self):
        canary = f"canary-{uuid.uuid4().hex}"
        self.store("ada", "hf", canary + "\n")
        self.store("ada", "key", canary + "-file", queue="research")
        digests = [hashlib.sha256(text.encode()).hexdigest() for text in (canary, canary + "-file")]
        job, work = self.submit("ada", 'digest() { sha256sum | cut -d" " -f1; }; '
                                f'test "$(printf %s "$HF" | digest)" = {digests[0]} && test "$(digest < $KEY)" = {digests[1]} && touch right; '
                                'ulimit -c > core; stat -Lc %a $KEY > mode; touch ready; sleep 600',
                                [{"name": "hf", "env": "HF"}, {"name": "key", "file": "KEY"}])
        wait_until((work / "ready").exists, "the ranks run")
        self.assertTrue((work / "right").exists(), "the values are those that were stored")
        self.assertEqual((work / "core").read_text().strip(), "0")
        self.assertEqual((work / "mode").read_text().strip(), "400")
        self.scan(canary, job)
        self.by("ada", "cancel", job)
        self.wait(job, 11)
        self.scan(canary, job)
        entries = [json.loads(line) for line in self.cluster.muster("audit", "tail", "-n", 1000, "-o", "jsonl").stdout.splitlines()]
        self.assertIn(("node/node-1", "FetchSecrets", f"job {job}", "OK"),
                      [(entry["actor"], entry["operation"], entry["object"], entry["outcome"]) for entry in entries])

    def scan(self, canary, job):
        """In files of the cluster, answers, metrics and environments of Muster's own processes."""
        needle = canary.encode()
        for path in self.cluster.root.rglob("*"):
            if path.is_file():
                self.assertNotIn(needle, path.read_bytes(), path)
        for words in (("get", job), ("describe", job), ("events", job), ("logs", job), ("audit", "tail", "-n", 1000), ("secret", "list", "--all")):
            done = self.cluster.muster(*words, *(("-o", "json") if words[0] not in ("logs", "describe") else ()), check=False)
            self.assertNotIn(canary, done.stdout + done.stderr, words)
        metrics = subprocess.run(["curl", "-s", f"http://{self.cluster.endpoint['http']}/metrics"], capture_output=True, timeout=60).stdout
        self.assertIn(b"muster_", metrics)
        self.assertNotIn(needle, metrics)
        for pid, _ in processes_of(self.cluster.root):
            program = os.readlink(f"/proc/{pid}/exe")
            if "muster-" in program:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes() + pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                self.assertNotIn(needle, environment, program)

    def test_a_job_gets_its_owners_secrets_from_its_queue_upwards(self):
        self.store("ada", "s", "of-nlp")
        self.store("ada", "s", "of-research", queue="research")
        self.store("bob", "s", "bobs")
        for name, queue, want in (("ada", "nlp", "of-nlp"), ("ada", "vision", "of-research"), ("bob", "nlp", "bobs")):
            job, _ = self.submit(name, f'test "$S" = {want}', [{"name": "s", "env": "S"}], queue=queue)
            self.wait(job)
        done = self.submit("bob", "true", [{"name": "s", "env": "S"}], queue="vision", check=False)
        self.assertEqual(done.returncode, CONFLICT)
        self.assertIn("bob has no secret 's' in queue vision or one above it\n  next: muster secret set s --queue vision", done.stderr)
        self.assertIn("ada may not store secrets: that needs the role submitter in queue default", self.by("ada", "secret", "set", "x", value="x", check=False).stderr)
        listed = json.loads(self.by("bob", "secret", "list", "-o", "json").stdout)
        self.assertEqual({secret["owner"] for secret in listed}, {"bob"})
        self.assertEqual(self.by("bob", "secret", "list", "--all", check=False).returncode, NOT_ALLOWED)
        self.assertEqual(self.by("bob", "secret", "rotate-key", check=False).returncode, NOT_ALLOWED)

    def test_a_secret_that_is_gone_or_whose_key_is_gone_starts_no_rank(self):
        self.store("ada", "late", "x")
        job, _ = self.submit("ada", "true", [{"name": "late", "env": "L"}], hold=True)
        self.by("ada", "secret", "rm", "late", "--queue", "nlp")
        self.by("ada", "release", job)
        self.wait(job, 10)
        self.assertIn("ada has no secret 'late' any more", self.cluster.muster("describe", job).stdout)
        self.store("ada", "late", "x")
        keys = self.cluster.dir / "coordinator" / "secret-keys"
        text = keys.read_bytes()
        self.restart_coordinator(lambda: keys.unlink())
        self.addCleanup(self.restart_coordinator, lambda: keys.exists() or (keys.write_bytes(text), keys.chmod(0o600)))
        job, _ = self.submit("ada", "true", [{"name": "late", "env": "L"}])
        self.wait(job, 10)
        self.assertIn("are not there; restore the file from a copy", self.cluster.muster("describe", job).stdout)
        self.assertIn("are not there", self.by("ada", "secret", "set", "new", "--queue", "nlp", value="y", check=False).stderr)
        self.assertFalse(keys.exists(), "no other key is made while secrets need this one")

    def restart_coordinator(self, change):
        process = self.cluster.daemons[0]
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        change()
        endpoint = self.cluster.dir / "coordinator" / "endpoint.json"
        tls, join = self.cluster.endpoint["grpc_tls"], self.cluster.endpoint["grpc_join"]
        self.cluster.daemons[0] = self.cluster.start("coordinator", "muster-coordinator", "--dir", self.cluster.dir, "--tls-listen", tls,
                                                     "--tls-http", "127.0.0.1:0", "--join-listen", join)
        self.cluster.daemons.pop()
        wait_until(lambda: endpoint.exists() and json.loads(endpoint.read_text())["pid"] == self.cluster.daemons[0].pid, "the coordinator listens")
        self.cluster.endpoint = json.loads(endpoint.read_text(encoding="utf-8"))
        self.cluster.wait_until_there(1)

    def test_a_new_key_opens_what_the_old_one_closed_also_after_a_restart(self):
        self.store("ada", "r", "right")
        keys = self.cluster.dir / "coordinator" / "secret-keys"
        before = keys.read_text()
        self.assertIn("by a new key", self.cluster.muster("secret", "rotate-key").stdout)
        after = keys.read_text()
        self.assertEqual((len(after.splitlines()), set(before.split()) & set(after.split())), (1, set()))
        self.restart_coordinator(lambda: None)
        job, _ = self.submit("ada", 'test "$R" = right', [{"name": "r", "env": "R"}])
        self.wait(job)

    def test_a_rank_that_is_started_again_gets_them_again(self):
        self.store("ada", "again", "right")
        job, work = self.submit("ada", 'test "$A" = right && echo x >> right; touch up; sleep 600', [{"name": "again", "env": "A"}],
                                restart={"max_without_progress": 5})
        wait_until((work / "up").exists, "it runs")
        guardians = [pid for pid, _ in processes_of(self.cluster.root) if os.readlink(f"/proc/{pid}/exe").endswith("muster-guardian")]
        for pid in guardians:
            kill(pid)
        wait_until(lambda: (work / "right").read_text().count("x") == 2, "the next generation has the value", timeout=60)
        self.by("ada", "cancel", job)

    def test_what_is_no_secret_is_refused(self):
        for words, value, text in ((("set", "a b"), "x", "is no name of a secret"), (("set", "a"), "", "the value is empty"),
                                   (("set", "a"), "x" * 70_000, "more than 64 KiB"), (("set", "a"), "x\0y", "a zero byte")):
            done = self.by("ada", "secret", *words, "--queue", "nlp", value=value, check=False)
            self.assertEqual(done.returncode, BAD_USAGE, done.stderr)
            self.assertIn(text, done.stderr)
        self.assertIn("unknown queue 'nope'", self.cluster.muster("secret", "set", "a", "--queue", "nope", "--from-file", __file__, check=False).stderr)


if __name__ == "__main__":
    unittest.main()
