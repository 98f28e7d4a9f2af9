"""Backups, restores and migrations of the coordinator's store, while a job runs on a node."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, alive, can_have_namespaces, kill, processes_of, run, wait_until  # noqa: E402
from etcd import Etcd  # noqa: E402

FAILED, CONFLICT, NOT_FOUND = 1, 6, 3  # exit codes of muster
LEASE_S = 2  # of etcd's leader key
LARGE_JOBS = 8
needs_etcd = unittest.skipUnless(shutil.which("etcd") and shutil.which("etcdctl"),
                                 "Debian's packages etcd-server and etcd-client are not installed")


class WithCluster(unittest.TestCase):
    """A coordinator and a worker of one directory; jobs note the process of each rank that they start."""

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-backup."))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.directory = self.root / "cluster"
        self.directory.mkdir()
        self.database = self.directory / "coordinator" / "state.db"
        self.coordinator = None
        self.addCleanup(self.stop, signal.SIGKILL)

    def start(self, *flags):
        with open(self.root / "coordinator.log", "ab") as log:
            self.coordinator = subprocess.Popen(
                [BIN / "muster-coordinator", "--dir", self.directory, *map(str, flags)],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(lambda: self.muster("get", check=False).returncode == 0, "the coordinator serves")

    def stop(self, number=signal.SIGTERM):
        if self.coordinator and self.coordinator.poll() is None:
            self.coordinator.send_signal(number)
            self.coordinator.wait()

    def start_worker(self):
        with open(self.root / "worker.log", "ab") as log:
            worker = subprocess.Popen(
                [BIN / "muster-worker", "--dir", self.directory, "--node", "node-1", "--slots", "8"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(self.end_worker, worker)
        self.wait_for_node()

    def end_worker(self, worker):
        worker.terminate()
        worker.wait(timeout=60)
        for pid, _ in processes_of(self.root):
            kill(pid)

    def muster(self, *words, **options):
        return run("muster", *words, "--dir", self.directory, **options)

    def json(self, *words):
        return json.loads(self.muster(*words, "-o", "json").stdout)

    def wait_for_node(self):
        wait_until(lambda: [node["state"] for node in self.json("nodes")] == ["ready"], "the node is ready")

    def pids(self, name):
        """Of every rank that was ever started, in this order."""
        file = self.root / f"{name}.pids"
        return [int(pid) for pid in file.read_text(encoding="ascii").split()] if file.exists() else []

    def living(self, name):
        return [pid for pid in self.pids(name) if alive(pid)]

    def submit(self, name, size=0):
        file = self.root / f"{name}.json"
        file.write_text(json.dumps({
            "name": name, "workdir": str(self.root), "resources": {"nodes": 1, "ranks_per_node": 1},
            "command": ["sh", "-c", f"echo $$ >> {name}.pids; exec sleep 600", "x" * size]}), encoding="utf-8")
        self.muster("submit", file)

    def submit_large(self):
        """Jobs whose files are not read or written in a moment."""
        for number in range(LARGE_JOBS):
            self.submit(f"large-{number}", size=100_000)

    def run_job(self, name):
        self.submit(name)
        wait_until(lambda: self.job(name)["state"] == "running" and self.pids(name), f"{name} runs")
        return self.rank(name)

    def job(self, name):
        return self.json("get", name)

    def rank(self, name):
        """(generation, pid) of its only rank."""
        job = self.job(name)
        return job["generation"], job["ranks"][0]["pid"]

    def names(self):
        return {job["name"] for job in self.json("get")}

    def check_store(self, *words):
        done = self.muster("store", "check", *words, "-o", "json", check=False)
        self.assertEqual((done.returncode, json.loads(done.stdout or "null")), (0, []), done.stderr)

    def assert_refused(self, code, text, *words):
        done = self.muster(*words, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(text, done.stderr)


class OfSqlite(WithCluster):
    def test_backups_of_a_running_coordinator_have_what_was_acknowledged_before(self):
        self.start()
        self.start_worker()
        before = self.run_job("train")
        acknowledged, stop = [], threading.Event()

        def submit():
            while not stop.is_set():
                self.submit(f"job-{len(acknowledged)}", size=1000)
                acknowledged.append(f"job-{len(acknowledged)}")

        submitting = threading.Thread(target=submit)
        submitting.start()
        try:
            for number in range(3):
                wait_until(lambda: len(acknowledged) > 2 * number, "jobs are submitted")
                least = len(acknowledged) + 1
                file = self.root / f"backup-{number}"
                written = self.json("backup", file)
                self.assertGreaterEqual(written["jobs"], least)
                self.assertEqual(written["nodes"], 1)
                self.check_store(file)
                self.check_store()
        finally:
            stop.set()
            submitting.join()
        self.assertEqual(self.rank("train"), before)
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        content = file.read_bytes()
        self.assert_refused(CONFLICT, "is there already", "backup", file)
        self.assertEqual(file.read_bytes(), content)
        self.assert_refused(CONFLICT, "has a coordinator", "restore", file, "--replace")
        self.assertIsNone(self.coordinator.poll())

    def test_an_older_backup_is_restored_while_jobs_run(self):
        self.start()
        self.start_worker()
        same = self.run_job("same")  # as in the backup
        newer = self.run_job("newer")  # in a later generation than in the backup
        file = self.root / "hour-ago"
        self.muster("backup", file)
        kill(newer[1])
        wait_until(lambda: self.job("newer")["state"] == "running" and self.rank("newer")[0] == 2, "it is started again")
        lost = self.run_job("lost")  # not in the backup
        self.stop(signal.SIGKILL)
        self.assert_refused(CONFLICT, "--replace", "restore", file)
        restored = self.json("restore", file, "--replace")
        self.assertEqual((restored["jobs"], restored["unfinished_jobs"]), (2, 2))
        self.assertGreater(restored["epoch"], 0)
        self.check_store()
        self.start()
        wait_until(lambda: self.job("newer")["state"] == "running" and self.rank("newer")[0] > 2, "it goes on")
        wait_until(lambda: not alive(lost[1]), "what runs of the lost job is ended")
        self.assertEqual(self.rank("same"), same)
        self.assertEqual(self.pids("same"), [same[1]])
        self.assertEqual(self.living("newer"), [self.rank("newer")[1]])
        self.assertEqual(self.rank("newer")[0], 1001)
        self.assertEqual(self.names(), {"same", "newer"})
        self.assertIn("of which the store does not know", self.muster("events", "newer").stdout)
        self.check_store()
        epoch = json.loads((self.directory / "coordinator" / "endpoint.json").read_text(encoding="utf-8"))["epoch"]
        self.assertEqual(epoch, restored["epoch"])
        self.muster("cancel", "same", "newer")
        wait_until(lambda: not self.living("same") and not self.living("newer"), "both have ended")

    def test_a_restore_that_is_killed_leaves_what_was_there(self):
        self.start()
        self.submit_large()
        file = self.root / "backup"
        self.muster("backup", file)
        self.muster("cancel", *self.names())
        self.stop()
        before = self.json("backup", self.root / "before")
        partial = self.database.with_name("state.db.partial")
        killed = 0
        for _ in range(20):
            restoring = subprocess.Popen([BIN / "muster", "restore", file, "--replace", "--dir", self.directory],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            while restoring.poll() is None and not partial.exists():
                pass
            restoring.kill()
            killed += restoring.wait() == -signal.SIGKILL
            self.check_store()
            if killed == 2:
                break
        self.assertGreater(killed, 0)
        after = self.json("backup", self.root / "after")
        self.assertEqual({**after, "file": ""}, {**before, "file": ""})
        self.muster("restore", file, "--replace")
        self.assertFalse(partial.exists())
        self.start()
        self.assertEqual({job["state"] for job in self.json("get")}, {"queued"})

    def test_files_that_are_no_backup_are_refused_and_change_nothing(self):
        self.start()
        self.submit("job")
        file = self.root / "backup"
        self.muster("backup", file)
        self.stop()
        content = self.database.read_bytes()
        foreign = self.root / "foreign"
        foreign.write_text("name: job\n" * 20, encoding="utf-8")
        damaged = self.root / "damaged"
        damaged.write_bytes(file.read_bytes()[:-1])
        for verb in (("restore", "--replace"), ("store", "check")):
            self.assert_refused(FAILED, f"{foreign} is damaged at byte 0: not a journal file", *verb, foreign)
            self.assert_refused(FAILED, f"{damaged} is damaged at byte", *verb, damaged)
            self.assert_refused(NOT_FOUND, str(self.root / "none"), *verb, self.root / "none")
        self.assertEqual(self.database.read_bytes(), content)

    @unittest.skipUnless(can_have_namespaces(), "a small disk of its own needs root")
    def test_a_full_disk_leaves_what_was_there(self):
        self.start()
        self.submit_large()
        file = self.root / "backup"
        self.muster("backup", file)
        self.stop()
        small = self.root / "small"
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=True, timeout=60)
        self.addCleanup(subprocess.run, ["umount", "-l", small], check=True, timeout=60)
        (small / "filler").write_bytes(bytes(600_000))
        self.assert_refused(FAILED, "No space left", "backup", small / "backup")
        self.assertEqual([path.name for path in small.iterdir()], ["filler"])
        done = run("muster", "restore", file, "--dir", small / "cluster", check=False)
        self.assertEqual(done.returncode, FAILED, done.stderr)
        self.assertIn("make room", done.stderr)
        (small / "filler").unlink()
        self.assertEqual([path.name for path in (small / "cluster" / "coordinator").iterdir()], ["state.db"])

    def test_a_record_that_does_not_fit_is_named(self):
        self.start()
        self.submit("job")
        self.stop()
        script = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(sys.argv[2]); db.commit()"
        subprocess.run([sys.executable, "-c", script, self.database,
                        "INSERT INTO attempts VALUES('gone', 1, '{\"job\":\"gone\",\"generation\":1}')"],
                       check=True, timeout=60)
        done = self.muster("store", "check", "-o", "json", check=False)
        self.assertEqual(done.returncode, FAILED, done.stderr)
        (violation,) = json.loads(done.stdout)
        self.assertEqual((violation["table"], violation["key"]), ("attempts", "gone/1"))
        self.assertIn("restore", violation["next"])


@needs_etcd
class WithEtcd(WithCluster):
    def setUp(self):
        super().setUp()
        self.etcd = Etcd(self, self.root / "etcd")
        self.flags = self.etcd.flags("muster")

    def start_on_etcd(self):
        self.start(*self.etcd.flags("muster"), "--etcd-lease", f"{LEASE_S}s")

    def test_a_store_is_migrated_to_etcd_and_back_while_a_job_runs(self):
        self.start()
        self.start_worker()
        before = self.run_job("train")
        self.assert_refused(CONFLICT, "has a coordinator", "store", "migrate", "sqlite", "etcd", *self.flags)
        self.stop()
        there = self.json("store", "migrate", "sqlite", "etcd", *self.flags)
        self.check_store(*self.flags)
        self.assert_refused(CONFLICT, "--replace", "store", "migrate", "sqlite", "etcd", *self.flags)
        self.start_on_etcd()
        self.wait_for_node()
        self.assertEqual(self.rank("train"), before)
        self.submit("on-etcd")
        self.check_store(*self.flags)
        self.muster("backup", self.root / "of-etcd", *self.flags)
        self.check_store(self.root / "of-etcd")
        self.assert_refused(CONFLICT, "leads at", "store", "migrate", "etcd", "sqlite", "--replace", *self.flags)
        self.assert_refused(CONFLICT, "leads at", "restore", self.root / "of-etcd", "--replace", *self.flags)
        self.stop()
        back = self.json("store", "migrate", "etcd", "sqlite", "--replace", *self.flags)
        self.assertGreater(back["epoch"], there["epoch"])
        self.check_store()
        self.start()
        self.wait_for_node()
        self.assertEqual(self.names(), {"train", "on-etcd"})
        self.assertEqual(self.rank("train"), before)
        self.assertEqual(self.pids("train"), [before[1]])

    def test_a_migration_to_etcd_that_is_killed_leaves_nothing_that_counts(self):
        self.start()
        self.submit_large()
        self.stop()
        words = [BIN / "muster", "store", "migrate", "sqlite", "etcd", "--dir", self.directory, *map(str, self.flags)]
        for delay in (0.05, 0.2):
            migrating = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                         stdin=subprocess.DEVNULL)
            time.sleep(delay)  # wherever that is
            migrating.kill()
            migrating.wait()
            done = self.muster("backup", self.root / f"after-{delay}", "-o", "json", *self.flags, check=False)
            jobs = json.loads(done.stdout)["jobs"] if done.returncode == 0 else 0
            self.assertIn(jobs, (0, LARGE_JOBS), done.stderr)
            wait_until(lambda: "/muster/leader" not in self.etcd.keys("/muster/leader"), "the lease has ended")
        self.muster("store", "migrate", "sqlite", "etcd", "--replace", *self.flags)
        self.check_store(*self.flags)
        self.start_on_etcd()
        self.assertEqual(len(self.names()), LARGE_JOBS)

    def test_etcds_own_snapshot_is_restored_while_jobs_run(self):
        self.start_on_etcd()
        self.start_worker()
        same = self.run_job("same")
        newer = self.run_job("newer")
        snapshot = self.root / "snapshot"
        self.etcd.ctl("snapshot", "save", str(snapshot))
        kill(newer[1])
        wait_until(lambda: self.job("newer")["state"] == "running" and self.rank("newer")[0] == 2, "it is started again")
        lost = self.run_job("lost")
        for _ in range(2):  # so that the worker has met higher epochs
            self.stop()
            self.start_on_etcd()
            self.wait_for_node()
        self.stop()
        self.etcd.kill()
        shutil.move(self.etcd.path("data"), self.etcd.path("old"))
        subprocess.run(["etcdctl", "snapshot", "restore", snapshot, "--data-dir", self.etcd.path("data")],
                       env={**os.environ, "ETCDCTL_API": "3"}, check=True, capture_output=True, timeout=60)
        self.etcd.start()
        self.start_on_etcd()
        wait_until(lambda: not alive(lost[1]), "what runs of the lost job is ended")
        wait_until(lambda: self.job("newer")["state"] == "running" and self.rank("newer")[0] > 2, "it goes on")
        self.assertEqual(self.rank("same"), same)
        self.assertEqual(self.living("newer"), [self.rank("newer")[1]])
        self.assertEqual(self.names(), {"same", "newer"})
        self.check_store(*self.flags)


if __name__ == "__main__":
    unittest.main()
