"""Coordinators of several directories, as of several machines, over one etcd with TLS and users."""

import http.client
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, kill, processes_of, run, wait_until  # noqa: E402
from etcd import Etcd  # noqa: E402
from gang import free_port  # noqa: E402

FAILED, BAD_COMMAND = 1, 2  # exit codes of the coordinator
LEASE_S = 2
CERTIFICATES_READ_S = 1  # new ones are looked for that often


class Coordinator:
    """With a directory of its own."""

    def __init__(self, test, root, name, *flags):
        self.directory, self.flags = root / name, flags
        self.directory.mkdir()
        self.log = root / f"{name}.log"
        self.process = None
        test.addCleanup(self.kill)

    def start(self):
        self.log.write_text("", encoding="utf-8")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(BIN / "muster-coordinator"), "--dir", str(self.directory), *map(str, self.flags)],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return self

    def kill(self, number=signal.SIGKILL):
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait()

    def endpoint(self):
        try:
            return json.loads((self.directory / "coordinator" / "endpoint.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}

    def serves(self):
        """That of a standby has no epoch."""
        return "epoch" in self.endpoint()

    def wait_until_it_serves(self):
        wait_until(self.serves, f"{self.directory.name} serves")
        return self.endpoint()

    def wait_until_it_stands_by(self):
        wait_until(lambda: self.endpoint() and not self.serves(), f"{self.directory.name} stands by")
        return self.endpoint()

    def wait_for_log(self, text):
        wait_until(lambda: text in self.log.read_text(encoding="utf-8"), f"{self.directory.name} logs '{text}'")

    def wait_for_end(self):
        return self.process.wait(timeout=60)

    def has_ended_within(self, seconds):
        try:
            return self.process.wait(timeout=seconds) is not None
        except subprocess.TimeoutExpired:
            return False

    def muster(self, *words, **options):
        return run("muster", *words, "--dir", self.directory, **options)

    def jobs(self):
        return {job["name"] for job in json.loads(self.muster("get", "-o", "json").stdout)}


@unittest.skipUnless(shutil.which("etcd") and shutil.which("etcdctl"),
                     "Debian's packages etcd-server and etcd-client are not installed")
class WithEtcd(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-etcd."))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)

    def job(self, name):
        workdir = self.root / "work"
        workdir.mkdir(exist_ok=True)
        file = self.root / f"{name}.json"
        file.write_text(json.dumps({"name": name, "workdir": str(workdir), "command": ["true"],
                                    "resources": {"nodes": 1, "ranks_per_node": 1}}), encoding="utf-8")
        return file

    def coordinator(self, name, *flags):
        return Coordinator(self, self.root, name, *flags, "--etcd-lease", f"{LEASE_S}s")


@unittest.skipUnless(shutil.which("etcd") and shutil.which("etcdctl"),
                     "Debian's packages etcd-server and etcd-client are not installed")
class EtcdTest(WithEtcd):
    def test_the_next_coordinator_has_every_acknowledged_job_of_one_that_was_killed(self):
        etcd = Etcd(self, self.root / "etcd")
        first = self.coordinator("first", *etcd.flags("muster")).start()
        self.assertEqual(first.wait_until_it_serves()["epoch"], 1)
        second = self.coordinator("second", *etcd.flags("muster")).start()
        second.wait_for_log("waits for the leader key, which epoch 1 on node")
        self.assertFalse(second.serves())

        acknowledged, refused = set(), threading.Event()

        def submit():
            for number in range(1000):
                if first.muster("submit", self.job(f"job-{number}"), check=False).returncode != 0:
                    break
                acknowledged.add(f"job-{number}")
            refused.set()

        submitting = threading.Thread(target=submit)
        submitting.start()
        wait_until(lambda: len(acknowledged) >= 5, "five jobs are submitted")
        first.kill()
        submitting.join()
        self.assertTrue(refused.is_set())
        self.assertEqual(second.wait_until_it_serves()["epoch"], 2)
        self.assertLessEqual(acknowledged, second.jobs())

        # Started again it waits, and takes over from one that ends.
        first.start().wait_for_log("waits for the leader key, which epoch 2 on node")
        second.kill(signal.SIGTERM)
        self.assertEqual(first.wait_until_it_serves()["epoch"], 3)
        self.assertLessEqual(acknowledged, first.jobs())
        self.assertEqual([key for key in etcd.keys("") if not key.startswith("/muster/")], [])

    def test_a_coordinator_that_stood_still_beyond_its_lease_answers_nothing_and_stands_by(self):
        etcd = Etcd(self, self.root / "etcd")
        first = self.coordinator("first", *etcd.flags("muster")).start()
        first.wait_until_it_serves()
        second = self.coordinator("second", *etcd.flags("muster")).start()
        second.wait_for_log("waits for the leader key")
        first.process.send_signal(signal.SIGSTOP)
        second.wait_until_it_serves()
        second.muster("submit", self.job("of-second"))
        late, codes = self.job("late"), {}
        calls = [threading.Thread(target=lambda words=words: codes.update(
            {words[0]: first.muster(*words, check=False).returncode})) for words in (("submit", late), ("get",))]
        for call in calls:
            call.start()
        first.process.send_signal(signal.SIGCONT)
        for call in calls:
            call.join()
        # Neither a change nor what it remembers, which lacks the job of the second one.
        self.assertNotIn(0, codes.values())
        first.wait_until_it_stands_by()
        self.assertIn("does not lead any more, and stands by", first.log.read_text(encoding="utf-8"))
        self.assertEqual(second.jobs(), {"of-second"})
        second.kill(signal.SIGTERM)
        self.assertEqual(first.wait_until_it_serves()["epoch"], 3)
        self.assertEqual(first.jobs(), {"of-second"})

    def test_a_leader_holds_its_answers_while_etcd_is_away_and_leads_on(self):
        etcd = Etcd(self, self.root / "etcd")
        only = self.coordinator("only", *etcd.flags("muster")).start()
        page = only.wait_until_it_serves()["http"]
        only.muster("submit", self.job("before"))
        etcd.kill()
        wait_until(lambda: get(page, "/readyz")[0] == 503, "its lease is over")
        read = []
        reading = threading.Thread(target=lambda: read.append(only.jobs()))
        reading.start()
        reading.join(LEASE_S)
        self.assertEqual(read, [])
        etcd.start()  # and extends the lease, since it was away
        reading.join()
        self.assertEqual(read, [{"before"}])
        only.muster("submit", self.job("after"))
        self.assertEqual(get(page, "/readyz")[0], 200)
        self.assertEqual(only.endpoint()["epoch"], 1)

    def test_a_full_etcd_refuses_requests_by_name_and_reads_go_on(self):
        quota = 4 << 20
        etcd = Etcd(self, self.root / "etcd", flags=("--quota-backend-bytes", str(quota)))
        only = self.coordinator("only", *etcd.flags("muster")).start()
        only.wait_until_it_serves()
        only.muster("submit", self.job("before"))
        filler = self.root / "filler"
        filler.write_bytes(b"x" * (1 << 20))

        def full():
            try:
                etcd.put_file("/filler", filler)
            except AssertionError as error:
                self.assertIn("database space exceeded", str(error))
                return True
            return False

        wait_until(full, "etcd is full")
        for name, words in (("first", "takes effect once there is room"), ("second", "NOSPACE")):
            refused = only.muster("submit", self.job(name), check=False)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("etcd has no space left for changes", refused.stderr)
            self.assertIn(words, refused.stderr)
        self.assertLessEqual({"before"}, only.jobs())
        self.assertNotIn("second", only.jobs())
        etcd.ctl("del", "/filler")
        revision = json.loads(etcd.ctl("get", "/muster/epoch", "-w", "json"))["header"]["revision"]
        etcd.ctl("compact", str(revision))
        etcd.ctl("defrag")
        etcd.ctl("alarm", "disarm")
        wait_until(lambda: only.muster("submit", self.job("after"), check=False).returncode == 0, "there is room again")
        self.assertEqual(only.jobs(), {"before", "first", "after"})
        only.kill()
        only.start()
        wait_until(lambda: only.endpoint().get("epoch") == 2, "it serves again")
        self.assertEqual(only.jobs(), {"before", "first", "after"})

    def test_a_token_that_etcd_has_forgotten_is_replaced(self):
        etcd = Etcd(self, self.root / "etcd")
        password = self.root / "password"
        password.write_text("of-muster\n", encoding="utf-8")
        # etcd believes the common name of a certificate, unless there is a token.
        only = self.coordinator("only", *etcd.flags("eve"), "--etcd-user", "muster", "--etcd-password-file", password)
        only.flags = [*only.flags[:-1], "30s"]
        only.start().wait_until_it_serves()
        only.muster("submit", self.job("before"))
        etcd.kill()
        etcd.start()
        only.muster("submit", self.job("after"))
        self.assertEqual(only.jobs(), {"before", "after"})
        self.assertIsNone(only.process.poll())

    def test_a_certificate_that_is_replaced_is_shown_at_the_next_connection(self):
        etcd = Etcd(self, self.root / "etcd")
        only = self.coordinator("only", *etcd.flags("muster"))
        only.flags = [*only.flags[:-1], "30s"]
        only.start().wait_until_it_serves()
        only.muster("submit", self.job("before"))
        etcd.replace("muster", "eve")  # who may do nothing
        only.muster("submit", self.job("over-the-connection-that-there-is"))

        def ended_after_another_connection():
            etcd.kill()
            etcd.start()
            return only.has_ended_within(CERTIFICATES_READ_S)

        wait_until(ended_after_another_connection, "the new certificate is shown")
        self.assertEqual(only.wait_for_end(), FAILED)
        self.assertIn("permission denied", only.log.read_text(encoding="utf-8"))

    def test_what_etcd_does_not_allow_ends_the_start_with_its_reason(self):
        etcd = Etcd(self, self.root / "etcd")
        for name, reason in (("eve", "permission denied"), ("nobody", "permission denied")):
            with self.subTest(name):
                refused = self.coordinator(name, *etcd.flags(name)).start()
                self.assertEqual(refused.wait_for_end(), FAILED)
                self.assertIn(reason, refused.log.read_text(encoding="utf-8"))
        self.assertEqual(etcd.keys("/muster/"), [])

    def test_wrong_command_lines_are_refused_with_what_to_write(self):
        for flags, reason in ((["--etcd", "http://10.0.0.1:2379"], "not on loopback"),
                              (["--etcd", "a:2379"], "no scheme"),
                              (["--etcd", "http://127.0.0.1:1", "--journal", "/j"], "--journal"),
                              (["--etcd-prefix", "/x/"], "--etcd")):
            with self.subTest(flags):
                refused = run("muster-coordinator", "--dir", self.root / "none", *flags, check=False)
                self.assertEqual(refused.returncode, BAD_COMMAND, refused.stderr)
                self.assertIn(reason, refused.stderr + refused.stdout)
        refused = run("muster-coordinator", "--dir", self.root / "none", "--etcd", "https://127.0.0.1:1", check=False)
        self.assertEqual(refused.returncode, FAILED)
        self.assertIn("--etcd-ca", refused.stderr)


def get(address, path):
    """What a browser that follows nothing is answered, as (status, headers, body)."""
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


@unittest.skipUnless(shutil.which("etcd") and shutil.which("etcdctl"),
                     "Debian's packages etcd-server and etcd-client are not installed")
class Standbys(WithEtcd):
    """Two coordinators with TLS for other machines, whose addresses people and workers know."""

    def setUp(self):
        super().setUp()
        self.etcd = Etcd(self, self.root / "etcd")
        self.addresses, self.coordinators = [], {}
        for name in ("first", "second"):
            ports = [free_port() for _ in range(2)]
            coordinator = self.coordinator(name, *self.etcd.flags("muster"), "--tls-listen", f"127.0.0.1:{ports[0]}",
                                           "--tls-http", f"127.0.0.1:{ports[1]}")
            self.addresses.append(f"127.0.0.1:{ports[0]}")
            self.coordinators[name] = coordinator
        self.first, self.second = self.coordinators.values()
        # The authority is on the first one's machine; the second one is given its credentials.
        run("muster", "init", "--dir", self.first.directory, "--cluster", "lab")
        for name, role in (("second", "coordinator"), ("node-1", "node")):
            run("muster", "certs", "issue", "--dir", self.first.directory, "--role", role, "--name", name, "--out",
                self.root / f"of-{name}")
        security = self.second.directory / "security"
        security.mkdir(mode=0o700)
        shutil.copytree(self.root / "of-second", security / "coordinator")
        self.admin = self.first.directory / "security" / "admin"
        self.first.start().wait_until_it_serves()
        self.second.start().wait_until_it_stands_by()

    def muster(self, address, *words, **options):
        return run("muster", *words, "--coordinator", address, "--tls", self.admin, "--dir", self.root / "none", **options)

    def roles(self, addresses):
        done = self.muster(addresses, "coordinators", "-o", "json", check=False)
        return {each["address"]: each["role"] for each in json.loads(done.stdout)}

    def start_worker(self):
        log = self.root / "worker.log"
        with open(log, "ab") as output:
            worker = subprocess.Popen(
                [str(BIN / "muster-worker"), "--dir", self.root / "node", "--node", "node-1", "--slots", "2",
                 "--address", "127.0.0.11", "--coordinator", ",".join(self.addresses), "--tls", self.root / "of-node-1"],
                stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(self.end_worker, worker)
        return worker

    def end_worker(self, worker):
        worker.terminate()
        worker.wait(timeout=60)
        for pid, _ in processes_of(self.root / "node"):
            kill(pid)

    def node(self, address):
        nodes = json.loads(self.muster(address, "nodes", "-o", "json").stdout)
        return nodes[0]["state"] if nodes else ""

    def test_a_call_to_a_standby_is_made_at_the_leader(self):
        of_first, of_second = self.addresses
        self.muster(of_second, "submit", self.job("by-the-standby"))
        self.assertEqual(self.first.jobs(), {"by-the-standby"})
        self.assertEqual(self.roles(of_second), {of_first: "leads", of_second: "stands by"})
        # Without credentials a client does not go to another machine, and says which one leads.
        refused = self.second.muster("get", check=False)
        self.assertEqual(refused.returncode, 5, refused.stderr)
        self.assertIn(f"stands by; that of epoch 1 on node {socket.gethostname()}", refused.stderr)
        self.assertIn(of_first, refused.stderr)

    def test_a_standby_answers_probes_and_shows_browsers_the_way(self):
        page = self.second.endpoint()["http"]
        for path, status in (("/healthz", 200), ("/livez", 200), ("/readyz", 503)):
            self.assertEqual(get(page, path)[0], status, path)
            self.assertEqual(get(self.first.endpoint()["http"], path)[0], 200, path)
        self.assertIn("muster_coordinator_leads 0\n", get(page, "/metrics")[2])
        status, headers, _ = get(page, "/jobs/x?tab=log")
        self.assertEqual(status, 307)
        self.assertEqual(headers["Location"], f"https://{self.first.endpoint()['http_tls']}/jobs/x?tab=log")

    def test_workers_and_people_follow_the_leader_and_jobs_run_on(self):
        of_first, of_second = self.addresses
        both = ",".join(self.addresses)
        self.start_worker()
        wait_until(lambda: self.node(both) == "ready", "the node is ready")
        workdir = self.root / "run"
        workdir.mkdir()
        file = self.root / "long.json"
        file.write_text(json.dumps({"name": "long", "workdir": str(workdir), "command": ["sleep", "600"],
                                    "resources": {"nodes": 1, "ranks_per_node": 1}}), encoding="utf-8")
        self.muster(both, "submit", file)

        def rank(address):
            return json.loads(self.muster(address, "get", "long", "-o", "json").stdout)["ranks"][0]

        wait_until(lambda: json.loads(self.muster(both, "get", "long", "-o", "json").stdout)["state"] == "running", "it runs")
        before = rank(both)
        self.first.kill()
        # At once: the call waits for the election.
        self.muster(both, "submit", self.job("meanwhile"))
        self.assertEqual(self.second.wait_until_it_serves()["epoch"], 2)
        wait_until(lambda: self.node(both) == "ready", "the node is back")
        self.assertEqual(rank(both)["pid"], before["pid"])
        self.assertEqual(self.roles(both), {of_first: None, of_second: "leads"})

        self.first.start().wait_until_it_stands_by()
        self.second.kill(signal.SIGTERM)
        self.assertEqual(self.first.wait_until_it_serves()["epoch"], 3)
        wait_until(lambda: self.node(of_first) == "ready", "the node is back again")
        self.assertEqual(rank(of_first)["pid"], before["pid"])

        # As after a restore of an older snapshot: the node has served a higher epoch, so a leader campaigns above it.
        self.first.kill()
        self.etcd.ctl("put", "/muster/epoch", "1")
        self.first.start()
        wait_until(lambda: self.first.endpoint().get("epoch") == 4, "a leader above the node's epoch")
        wait_until(lambda: self.node(of_first) == "ready", "the node obeys it")
        self.assertEqual(rank(of_first)["pid"], before["pid"])
        self.muster(of_first, "cancel", "long")
        self.assertEqual(self.muster(of_first, "wait", "long", check=False).returncode, 11)


if __name__ == "__main__":
    unittest.main()
