"""Nodes whose jobs run as their owners: a muster-launcher, and a cluster of one such node with users who have an account.

  cluster = ClusterOfOwners(self)               # only where accounts.missing() says nothing
  job = cluster.submit_by("ada", "name", ["true"])
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import accounts
from cluster import BIN, kill, processes_of, run, wait_until
from tls_cluster import TlsCluster

IDS = {"worker-w": 61001, "ada": 61002, "bob": 61003, "mallory": 61004, "daemon-d": 999}
WORKER = IDS["worker-w"]
# Where the launcher makes control groups of jobs, if it is in the root of a hierarchy that it can write to.
GROUPS = next((pathlib.Path(line.split()[4]) for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
               if " - cgroup2 " in line), pathlib.Path("/nowhere")) / "muster-jobs"

USERS = """users: {ada: {account: ada}, bob: {account: bob}, eve: , mallory: {account: nobody-there}}
roles: [{role: submitter, users: [ada, bob, eve, mallory]}]
"""


def as_user(name, *words, **options):
    number = IDS[name]
    return subprocess.run([str(word) for word in words], user=number, group=number, extra_groups=[], text=True, capture_output=True,
                          check=False, timeout=60, **options)


class Node:
    """A launcher with programs beside it that only it sees."""

    def __init__(self, test, stand_in=""):
        self.root = pathlib.Path(accounts.make(IDS)) / f"node-{os.getpid()}-{time.monotonic_ns()}"
        self.bin = self.root / "bin"
        self.bin.mkdir(parents=True)
        self.jobs = self.root / "jobs"
        self.socket = self.root / "launcher.sock"
        if stand_in:
            shutil.copy(BIN / "muster-launcher", self.bin)
            for name in ("muster-guardian", "muster-worker"):
                (self.bin / name).write_text(stand_in, encoding="utf-8")
                (self.bin / name).chmod(0o755)
        else:
            accounts.mount("--bind", BIN, self.bin)
        test.addCleanup(self.close)
        self.launcher = self.start()

    def start(self):
        self.socket.unlink(missing_ok=True)
        with open(self.root / "launcher.log", "ab") as log:
            launcher = subprocess.Popen([self.bin / "muster-launcher", "--worker-user", "worker-w", "--socket", self.socket, "--dir", self.jobs],
                                        stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(self.socket.exists, "the launcher listens")
        return launcher

    def close(self):
        self.launcher.send_signal(signal.SIGKILL)
        self.launcher.wait(timeout=60)
        for pid, _ in processes_of(self.root):
            kill(pid)
        for folder in sorted(GROUPS.glob("**/"), reverse=True) if GROUPS.exists() else ():
            with contextlib.suppress(OSError):
                folder.rmdir()


class ClusterOfOwners(TlsCluster):
    def __init__(self, test):
        self.node = Node(test)
        super().__init__(test, nodes=1)
        file = self.path("users.yaml")
        file.write_text(USERS, encoding="utf-8")
        self.muster("users", "apply", file)
        self.people = {name: self.issue(name) for name in ("ada", "bob", "eve", "mallory")}

    def issue(self, name):
        out = self.path(f"certificate-{name}")
        run("muster", "certs", "issue", "--dir", self.dir, "--role", "user", "--name", name, "--out", out)
        return out

    def start_worker(self, node, token=None):
        os.chmod(self.root, 0o711)
        directory = self.worker_dir(node)
        directory.mkdir(exist_ok=True)
        os.chown(directory, WORKER, WORKER)
        join = self.root / "join"
        if token != "":
            join.write_text(self.token(node), encoding="utf-8")
            os.chown(join, WORKER, WORKER)
            join.chmod(0o600)
        with open(self.root / f"{node}.log", "ab") as log:
            worker = subprocess.Popen([self.node.bin / "muster-worker", "--dir", directory, "--node", node, "--slots", "8", "--address",
                                       self.address(node), "--nvml", "", "--launcher", self.node.socket, "--join", join],
                                      stdout=log, stderr=log, stdin=subprocess.DEVNULL, user=WORKER, group=WORKER, extra_groups=[],
                                      env={"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "USER": "worker-w"}, start_new_session=True)
        self.daemons.append(worker)
        return worker

    def by(self, name, *words, **options):
        return self.muster(*words, credentials=self.people[name], **options)

    def submit_by(self, name, title, command, workdir=None, **more):
        if not workdir:
            workdir = pathlib.Path("/mnt/home") / name / title
            workdir.mkdir(parents=True)
            os.chown(workdir, IDS.get(name, 0), IDS.get(name, 0))
        return self.submit_spec(name, {"name": title, "workdir": str(workdir), "command": command,
                                       "resources": {"nodes": 1, "ranks_per_node": 1}, "rendezvous": "rank0",
                                       "restart": {"max_without_progress": 4}, **more})

    def submit_spec(self, name, spec):
        return json.loads(self.by(name, "submit", "-o", "json", self.write_job(spec)).stdout)["id"]

    def rank_pid(self, job):
        return self.ranks(job)[0]

    def guardian_pid(self, job):
        return json.loads((self.node.jobs / job / "run" / "guardian.json").read_text(encoding="utf-8"))["pid"]


def ids_of(pid):
    return set(pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").split("\nUid:")[1].split("\n")[0].split())
