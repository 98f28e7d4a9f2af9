"""Where the faults of etcd_faults.py are done: three members of etcd, three coordinators, workers that train, and clients.

All are hosts of a network of their own, where root allows. `close` ends what is left.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

import etcd_test  # noqa: E402
from cluster import BIN, init_model, kill, processes_of, run, steps_in_order, train_job, wait_until, write_rows  # noqa: E402
from etcd_members import EtcdMembers  # noqa: E402
from network import Network  # noqa: E402

COORDINATORS = ("first", "second", "third")
MEMBERS = ("etcd-1", "etcd-2", "etcd-3")
SITE = "site"  # the host of workers and clients
CALLS, PAGES = 7070, 7071  # ports
WORKERS = 3
DISK_BYTES = 320 << 20  # of the member with a small disk; two files of 64 MiB are written ahead
PAUSE_S = 0.15  # of each micro-batch, so that ranks take little of a processor
FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
TESTS_BIN = BIN.parent / "tests"


class Coordinator(etcd_test.Coordinator):
    """On a host of its own; `clock` holds by how much its clock is wrong."""

    def __init__(self, arena, name):
        self.arena, self.address = arena, f"{arena.network.address(name)}:{CALLS}"
        self.clock = arena.root / f"{name}.clock"
        super().__init__(arena, arena.root, name, *arena.etcd.flags("muster"), "--tls-listen", self.address,
                         "--tls-http", f"{arena.network.address(name)}:{PAGES}")
        self.log.touch()

    def start(self):
        self.clock.write_text("+0", encoding="utf-8")
        env = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self.clock),
               "FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"} if FAKETIME.exists() else {}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.arena.network.enter(self.directory.name), str(BIN / "muster-coordinator"), "--dir",
                 str(self.directory), *map(str, self.flags)], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={**os.environ, **env})
        return self

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def epoch(self):
        """Of the term in which it leads; 0: it does not."""
        try:
            return self.endpoint().get("epoch", 0) if self.runs() else 0
        except ValueError:
            return 0


class Arena:
    def __init__(self, seed, keep=None):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-etcd-faults."))
        self.keep, self._stack = keep, contextlib.ExitStack()
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.addCleanup(self._keep_logs)
        self.network = Network([*COORDINATORS, *MEMBERS, SITE], site=SITE)
        self.addCleanup(self.network.close)
        self.has = {"cuts"} if self.network.can_cut else set()
        self.has |= {"strace"} if shutil.which("strace") else set()
        self.has |= {"faketime"} if FAKETIME.exists() else set()
        self.small_disk = self._mount_small_disk()
        self.etcd = EtcdMembers(self, self.root / "etcd", self.network, MEMBERS,
                                {MEMBERS[-1]: self.small_disk} if self.small_disk else {})
        self.coordinators = [Coordinator(self, name) for name in COORDINATORS]
        self.addresses = ",".join(each.address for each in self.coordinators)
        self._give_credentials()
        self.workers = []
        self.clients, self.client_seed = None, seed
        self.history = self.root / "history"
        self.addCleanup(self._end_site)

    def addCleanup(self, function, *arguments, **options):  # as of unittest.TestCase
        self._stack.callback(function, *arguments, **options)

    def close(self):
        self._stack.close()

    def _keep_logs(self):
        if self.keep and self.root.exists():
            left_out = ("*.data", "model", "checkpoints", "security", "*.key", "of-*", "fake", "*.sock", "socket")
            shutil.copytree(self.root, self.keep, dirs_exist_ok=True, symlinks=True,
                            ignore=shutil.ignore_patterns(*left_out))

    def _mount_small_disk(self):
        """A folder that can be full without anything else; None where there is no mounting."""
        mount = shutil.which("mount")
        disk = self.root / "disk"
        disk.mkdir()
        if not mount or subprocess.run([mount, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", disk],
                                       capture_output=True, check=False, timeout=10).returncode != 0:
            return None
        self.addCleanup(subprocess.run, [shutil.which("umount"), "-l", disk], check=False, timeout=10)
        self.has.add("small_disk")
        return disk

    def _give_credentials(self):
        first, *others = self.coordinators
        run("muster", "init", "--dir", first.directory, "--cluster", "lab")
        for role, name in [*(("coordinator", each.directory.name) for each in others),
                           *(("node", f"worker-{number}") for number in range(WORKERS))]:
            run("muster", "certs", "issue", "--dir", first.directory, "--role", role, "--name", name, "--out",
                self.root / f"of-{name}")
        for each in others:
            security = each.directory / "security"
            security.mkdir(mode=0o700)
            shutil.copytree(self.root / f"of-{each.directory.name}", security / "coordinator")
        self.admin = first.directory / "security" / "admin"

    def start(self):
        for each in self.coordinators:
            each.start()
        wait_until(self.leader, "a coordinator leads")
        for number in range(WORKERS):
            self._start_worker(number)
        wait_until(self.nodes_are_ready, "the nodes are ready")

    def _start_worker(self, number):
        name = f"worker-{number}"
        with open(self.root / f"{name}.log", "ab") as log:
            self.workers.append(subprocess.Popen(
                [*self.network.enter(SITE), str(BIN / "muster-worker"), "--dir", self.root / name, "--node", name,
                 "--slots", "2", "--address", f"127.0.0.{11 + number}", "--coordinator", self.addresses, "--tls",
                 self.root / f"of-{name}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "MUSTER_MICRO_BATCH_PAUSE": str(PAUSE_S)}))

    def _end_site(self):
        if self.clients:
            self.clients.kill()
            self.clients.wait()
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.wait(timeout=60)
        for each in self.workers and range(WORKERS):
            for pid, _ in processes_of(self.root / f"worker-{each}"):
                kill(pid)

    def leader(self):
        """The coordinator that leads, by the highest epoch; None."""
        best = max(self.coordinators, key=Coordinator.epoch)
        return best if best.epoch() else None

    def standbys(self):
        leader = self.leader()
        return [each for each in self.coordinators if each is not leader and each.runs()]

    def epoch(self):
        return max(each.epoch() for each in self.coordinators)

    def muster(self, *words, **options):
        done = subprocess.run(
            [*self.network.enter(SITE), str(BIN / "muster"), *map(str, words), "--coordinator", self.addresses, "--tls",
             self.admin, "--dir", self.root / "none", "-o", "json"], capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=60, **options)
        if done.returncode != 0:
            raise AssertionError(f"muster {' '.join(map(str, words))}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def nodes_are_ready(self):
        try:
            nodes = self.muster("nodes")
        except AssertionError:
            return False
        return sum(node["state"] == "ready" for node in nodes) >= WORKERS

    def train(self, name, nodes):
        """A job that trains until it is cancelled; the lines of its submission's history and its id."""
        os.environ["MUSTER_MICRO_BATCH_PAUSE"] = str(PAUSE_S)  # a smaller model
        model, rows = self.root / "model", self.root / "rows.jsonl"
        if not model.exists():
            init_model(model)
            write_rows(rows)
        spec = train_job(model, rows, self.root / name, steps=1_000_000, nodes=nodes, every=1000, name=name)
        file = self.root / f"{name}.json"
        file.write_text(json.dumps(spec), encoding="utf-8")
        call = {"client": 0, "number": nodes, "job": name, "op": "submit", "file": "trains", "begin": time.monotonic()}
        answer = self.muster("submit", file, "--key", name)
        call |= {"end": time.monotonic(), "answer": "ok", "id": answer["id"], "state": answer["state"]}
        with open(self.history, "a", encoding="utf-8") as history:
            history.write(json.dumps(call) + "\n")
        return answer["id"]

    def steps(self, name):
        try:
            return steps_in_order(self.root / name)
        except FileNotFoundError:
            return []

    def start_clients(self, rate, watch, more=()):
        work = self.root / "work"
        (work / "locks").mkdir(parents=True, exist_ok=True)
        watching = [f"--watch={name}={job}" for name, job in watch.items()]
        with open(self.history, "ab") as history, open(self.root / "clients.log", "ab") as log:
            self.clients = subprocess.Popen(
                [*self._client_command(), "--seed", str(self.client_seed), "--rate", str(rate), *watching, *more],
                stdin=subprocess.PIPE, stdout=history, stderr=log)
        self.client_seed += 1

    def end_clients(self):
        self.clients.stdin.close()
        if self.clients.wait(timeout=60) != 0:
            raise AssertionError(f"history_clients ended with {self.clients.returncode}")
        self.clients = None

    def read_jobs(self, jobs):
        """Asks once about each (key, file, id)."""
        with open(self.history, "ab") as history, open(self.root / "clients.log", "ab") as log:
            subprocess.run([*self._client_command(), "--seed", str(self.client_seed), "--read"], check=True, text=True,
                           input="".join(" ".join(job) + "\n" for job in jobs), stdout=history, stderr=log,
                           timeout=300)
        self.client_seed += 1

    def _client_command(self):
        return [*self.network.enter(SITE), str(TESTS_BIN / "history_clients"), "--coordinator", self.addresses, "--tls",
                str(self.admin), "--workdir", str(self.root / "work")]

    def doubled(self):
        """Jobs of which two attempts ran at once, by the lock that each attempt takes."""
        file = self.root / "work" / "doubled"
        return file.read_text(encoding="utf-8").split() if file.exists() else []

    def heal(self):
        """Undoes cuts and stops, and starts what has ended; waits until all is as before."""
        self.network.heal()
        for each in (*self.coordinators, *self.etcd.members):
            if each.runs():
                each.process.send_signal(signal.SIGCONT)
        for each in self.etcd.members:
            if not each.runs():
                each.start()
        self.etcd.wait_until_whole()
        for each in self.coordinators:
            each.clock.write_text("+0", encoding="utf-8")
            if not each.runs():
                each.start()

        def led():
            roles = [each.epoch() > 0 for each in self.coordinators]
            return all(each.runs() and each.endpoint() for each in self.coordinators) and roles.count(True) == 1
        wait_until(led, "one coordinator leads and the others stand by")
        wait_until(self.nodes_are_ready, "the nodes are ready again")
