"""Jobs run as their owners: what muster-launcher starts and refuses, and a cluster of two users who each have an account, one of whom
attacks the other and the node."""

import array
import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import textwrap
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import accounts  # noqa: E402
from cluster import alive, kill, wait_until  # noqa: E402
from owner_cluster import GROUPS, IDS, WORKER, ClusterOfOwners, Node, as_user, ids_of  # noqa: E402

HELLO, DIRECTORY, GUARDIAN, FILES, END, FORGET = range(1, 7)
# Codes of answers.
DONE, BAD_REQUEST, NO_ACCOUNT, ANOTHERS, SYSTEM_ACCOUNT, STILL_ENDING = 0, 3, 5, 6, 9, 10
REQUEST = struct.Struct("=BBH64s64s256s")
REPLY = struct.Struct("=BBH252s")
# Stands in for the guardian: says what it was started with, and waits.
SEEN = """#!/usr/bin/python3 -I
import json, os, socket, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
seen = {"argv": sys.argv, "environment": dict(os.environ), "cwd": os.getcwd(), "ids": os.getresuid() + os.getresgid(),
        "groups": os.getgroups(), "umask": os.umask(0), "sid": os.getsid(0), "pid": os.getpid(), "ppid": os.getppid(),
        "status": {key: status[key].strip() for key in status if key.startswith(("Cap", "NoNewPrivs", "Seccomp", "Sig"))},
        "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)),
        "tmp": [os.stat(path).st_uid for path in ("/tmp", "/var/tmp")], "shm": os.listdir("/dev/shm")}
socket.socket(fileno=3).send(json.dumps(seen).encode())
sys.stdin = None
import signal; signal.pause()
"""


def ask(node, verb, account="", job="", devices="", user=WORKER, bytes_=None):
    """The code and text of the answer of a request that this user makes, and the socket of what was started."""
    request = bytes_ or REQUEST.pack(1, verb, 0, account.encode(), job.encode(), devices.encode())
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    answer_read, answer_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.settimeout(30)
                connection.connect(str(node.socket))
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))] if verb in (GUARDIAN, FILES) else []
                connection.sendmsg([request], rights)
                os.write(answer_write, connection.recv(4096) or b"closed")
        except OSError as error:
            os.write(answer_write, f"error {error.errno}".encode())
        finally:
            os._exit(0)
    os.close(answer_write)
    theirs.close()
    text = os.read(answer_read, 4096)
    os.close(answer_read)
    os.waitpid(child, 0)
    if len(text) != REPLY.size:
        mine.close()
        return text.decode(), "", None
    _, code, _, detail = REPLY.unpack(text)
    return code, detail.rstrip(b"\0").decode(), mine


class Launcher(unittest.TestCase):
    def setUp(self):
        if accounts.missing():
            self.skipTest(accounts.missing())
        self.node = Node(self, stand_in=SEEN)

    def ask(self, *words, **options):
        answer = ask(self.node, *words, **options)
        if answer[2] is not None:
            self.addCleanup(answer[2].close)
        return answer

    def start(self, account, job):
        code, text, end = self.ask(GUARDIAN, account, job, "/run/lock")
        self.assertEqual(code, DONE, text)
        end.settimeout(30)
        seen = json.loads(end.recv(1 << 16))
        self.addCleanup(lambda: kill(seen["pid"]) if alive(seen["pid"]) else None)
        return seen

    def ends(self, job):
        wait_until(lambda: self.ask(END, job=job)[0] == DONE, "it is ended", 30)

    def test_a_guardian_is_the_account_and_nothing_else(self):
        os.environ["MUSTER_SECRET"] = "of the launcher"
        seen = self.start("ada", "00c0ffee00")
        directory = self.node.jobs / "00c0ffee00"
        self.assertEqual(seen["ids"], [IDS["ada"]] * 6)
        self.assertEqual(seen["groups"], [])
        self.assertEqual({key: int(value, 16) for key, value in seen["status"].items() if key.startswith("Cap")},
                         dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0))
        self.assertEqual((seen["status"]["NoNewPrivs"], seen["status"]["Seccomp"]), ("1", "2"))
        self.assertEqual(int(seen["status"]["SigBlk"], 16), 0)
        self.assertEqual((seen["umask"], seen["cwd"]), (0o077, str(directory / "run")))
        self.assertNotIn(seen["sid"], (os.getsid(self.node.launcher.pid), os.getsid(0)))
        self.assertNotEqual(seen["ppid"], self.node.launcher.pid)
        self.assertEqual(seen["descriptors"], [0, 1, 2, 3])
        self.assertEqual(seen["argv"][1:], ["--dir", str(directory / "run"), "--job", "00c0ffee00", "--worker-fd", "3", "--devices", "/run/lock",
                                            "--worker-uid", str(WORKER)])
        environment = {key: value for key, value in seen["environment"].items() if key not in ("LC_CTYPE",)}
        self.assertEqual(environment, {"HOME": "/mnt/home/ada", "USER": "ada", "LOGNAME": "ada", "SHELL": "/bin/sh",
                                       "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"})
        self.assertEqual((seen["tmp"], seen["shm"]), ([IDS["ada"]] * 2, []))
        if GROUPS.exists():
            group = pathlib.Path(f"/proc/{seen['pid']}/cgroup").read_text(encoding="utf-8").splitlines()[-1]
            self.assertTrue(group.endswith("/muster-jobs/00c0ffee00/muster-daemons"), group)
            self.assertEqual([(GROUPS / "00c0ffee00" / name).stat().st_uid for name in ("", "cgroup.procs", "cgroup.kill")], [IDS["ada"], IDS["ada"], 0])
        run_dir = (directory / "run").stat()
        self.assertEqual((run_dir.st_uid, run_dir.st_gid, stat.S_IMODE(run_dir.st_mode)), (IDS["ada"], WORKER, 0o2750))
        # Another job's, and another account's for the same job.
        self.assertNotEqual(self.start("bob", "00c0ffee01")["ids"][0], IDS["ada"])
        self.assertEqual(self.ask(GUARDIAN, "bob", "00c0ffee00", "/run/lock")[0], ANOTHERS)

    def test_a_second_guardian_of_a_job_is_in_its_control_group_too(self):
        if not GROUPS.exists():
            self.skipTest("there are no control groups of version 2 here")
        for _ in range(2):
            pid = self.start("ada", "00c0ffee00")["pid"]
            group = pathlib.Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()[-1]
            self.assertTrue(group.endswith("/muster-jobs/00c0ffee00/muster-daemons"), group)
            kill(pid)
            wait_until(lambda gone=pid: not alive(gone), "it is gone", 30)

    def test_it_outlives_the_launcher_and_is_ended_by_the_next_one(self):
        pid = self.start("ada", "00c0ffee00")["pid"]
        self.node.launcher.kill()
        self.node.launcher.wait(timeout=60)
        self.node.launcher = self.node.start()
        self.ends("00c0ffee09")
        self.assertTrue(alive(pid), "another job was ended")
        self.ends("00c0ffee00")
        if GROUPS.exists():
            wait_until(lambda: not alive(pid), "it is gone", 30)
        kill(pid)
        self.assertFalse((GROUPS / "00c0ffee00").exists())
        shutil.rmtree(self.node.jobs / "00c0ffee00" / "run")
        self.assertEqual(self.ask(FORGET, job="00c0ffee00")[0], DONE)
        self.assertFalse((self.node.jobs / "00c0ffee00").exists())

    def test_a_job_that_locks_and_nests_its_control_groups_is_ended(self):
        pid = self.start("ada", "00c0ffee00")["pid"]
        group = GROUPS / "00c0ffee00"
        if not group.exists():
            self.skipTest("there are no control groups of version 2 here")
        script = """
            import os, sys
            made = [sys.argv[1]]
            try:
                while len(made) < 100:
                    os.mkdir(made[-1] + "/x")
                    made.append(made[-1] + "/x")
            except OSError:
                pass
            for path in reversed(made):
                os.chmod(path, 0)
            print(len(made))
            """
        done = as_user("ada", "python3", "-c", textwrap.dedent(script), group)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(int(done.stdout), range(8, 20), "the kernel bounds how deep it goes")
        self.ends("00c0ffee00")
        self.assertFalse(group.exists())
        wait_until(lambda: not alive(pid), "it is gone", 30)

    def test_what_no_account_of_a_person_is_gets_nothing(self):
        for account, reason in (("root", SYSTEM_ACCOUNT), ("daemon-d", SYSTEM_ACCOUNT), ("nobody-there", NO_ACCOUNT), ("../x", BAD_REQUEST),
                                ("", BAD_REQUEST)):
            with self.subTest(account):
                self.assertEqual(self.ask(GUARDIAN, account, "00c0ffee00", "/run/lock")[0], reason)
                self.assertFalse((self.node.jobs / "00c0ffee00").exists())
        for job in ("..", "a/b", ""):
            self.assertEqual(self.ask(GUARDIAN, "ada", job, "/run/lock")[0], BAD_REQUEST)
        self.assertEqual(self.ask(HELLO, bytes_=b"x" * 17)[0], BAD_REQUEST)
        self.assertEqual(self.ask(9)[0], BAD_REQUEST)

    def test_only_the_workers_user_is_heard(self):
        self.assertEqual(self.ask(HELLO)[1], str(self.node.jobs))
        self.assertEqual(self.ask(HELLO, user=IDS["ada"])[0], "error 13")
        # Nor where the file's mode lets it in.
        self.node.socket.chmod(0o666)
        self.assertIn(self.ask(HELLO, user=IDS["ada"])[0], ("closed", "error 104", "error 32"))
        self.assertEqual(self.ask(HELLO)[0], DONE)

    def test_it_keeps_few_of_roots_rights(self):
        status = pathlib.Path(f"/proc/{self.node.launcher.pid}/status").read_text(encoding="utf-8")
        rights = {int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("CapPrm", "CapEff", "CapBnd"))}
        chown, setgid, setuid, setpcap, admin = 0, 6, 7, 8, 21
        self.assertEqual(rights, {sum(1 << each for each in (chown, setgid, setuid, setpcap, admin))})
        self.assertIn("Seccomp:\t2", status)


# What bob's rank tries. Each line of its output: what, and "refused" or what it got.
ATTACK = """
import ctypes, os, signal, socket, sys
victim, guardian, secrets, sockets = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(":"), sys.argv[4].split(":")
def attempt(what, action):
    try:
        print(what, "GOT", repr(action())[:80], flush=True)
    except OSError as error:
        print(what, "refused", error.errno, flush=True)
def opened(path, flags=os.O_RDONLY):
    os.close(os.open(path, flags | os.O_NONBLOCK))
def connected(path):
    kind = socket.SOCK_SEQPACKET
    with socket.socket(socket.AF_UNIX, kind) as one:
        one.settimeout(5)
        one.connect(path)
        one.send(b"x")
        if not one.recv(1000):
            raise ConnectionResetError(104, "closed")
libc = ctypes.CDLL(None, use_errno=True)
def traced(pid):
    if libc.ptrace(16, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
def read_memory(pid):
    buffer = ctypes.create_string_buffer(8)
    class iovec(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
    local = iovec(ctypes.addressof(buffer), 8)
    remote = iovec(0x400000, 8)
    if libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
for pid in (victim, guardian):
    for name in ("environ", "mem", "maps"):
        attempt(f"/proc/{name}", lambda: opened(f"/proc/{pid}/{name}"))
    attempt("/proc/fd", lambda: os.listdir(f"/proc/{pid}/fd"))
    attempt("/proc/root", lambda: os.listdir(f"/proc/{pid}/root/tmp"))
    attempt("ptrace", lambda: traced(pid))
    attempt("memory", lambda: read_memory(pid))
    attempt("signal", lambda: os.kill(pid, signal.SIGKILL))
    attempt("pidfd_getfd", lambda: [libc.syscall(438, os.pidfd_open(pid), 3, 0)][0] >= 0 or (_ for _ in ()).throw(OSError(ctypes.get_errno(), "")))
for path in secrets:
    attempt("secret " + path, lambda: opened(path))
    attempt("link " + path, lambda: os.link(path, "linked-" + os.path.basename(path)))
for path in sockets:
    attempt("socket " + path, lambda: connected(path))
attempt("setuid", lambda: os.setuid(0))
attempt("shared memory", lambda: [one for one in os.listdir("/dev/shm")] or (_ for _ in ()).throw(OSError(2, "")))
attempt("shared /tmp", lambda: opened("/tmp/of-all-users"))
print("attacked", flush=True)
"""


class Owners(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if accounts.missing():
            raise unittest.SkipTest(accounts.missing())
        cls.cleanup = unittest.TestCase()
        cls.addClassCleanup(cls.cleanup.doCleanups)
        cls.cluster = ClusterOfOwners(cls.cleanup)

    def worker(self):
        return self.cluster.daemons[-1]

    def log(self, name, job):
        return self.cluster.by(name, "logs", job, check=False).stdout

    def test_ranks_files_and_logs_are_the_owners_and_the_worker_has_no_rights(self):
        cluster = self.cluster
        script = 'echo "$USER $HOME $(umask)"; echo made >made; echo in-$MUSTER_JOB_ID >/tmp/private; exec sleep 600'
        job = cluster.submit_by("ada", "hers", ["sh", "-c", script])
        rank, guardian = cluster.rank_pid(job), cluster.guardian_pid(job)
        self.assertEqual((ids_of(rank), ids_of(guardian)), ({str(IDS["ada"])}, {str(IDS["ada"])}))
        worker = pathlib.Path(f"/proc/{self.worker().pid}/status").read_text(encoding="utf-8")
        for which in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            self.assertIn(f"{which}:\t0000000000000000", worker)
        self.assertEqual(ids_of(self.worker().pid), {str(WORKER)})
        wait_until(lambda: "ada /mnt/home/ada 0077" in self.log("ada", job), "the log is read", 30)
        workdir = pathlib.Path("/mnt/home/ada/hers")
        out = workdir / f"muster-hers-{job}"
        for path in (workdir / "made", out, out / "job.json", out / "logs"):
            self.assertEqual(path.stat().st_uid, IDS["ada"], path)
        self.assertNotEqual(as_user("worker-w", "ls", workdir).returncode, 0, "the worker's user reads nothing there")
        self.assertFalse(pathlib.Path("/tmp/private").exists())
        self.assertEqual((cluster.node.jobs / job / "tmp" / "private").read_text(encoding="utf-8"), f"in-{job}\n")
        # A worker that was replaced finds the guardian.
        self.worker().send_signal(signal.SIGKILL)
        self.worker().wait(timeout=60)
        cluster.daemons.pop()
        cluster.start_worker("node-1", token="")
        wait_until(lambda: cluster.json("nodes")[0]["state"] == "ready", "the worker is back", 30)
        self.assertEqual((cluster.rank_pid(job), cluster.guardian_pid(job)), (rank, guardian))
        self.assertIn("ada", self.log("ada", job))
        # And without its guardian the job goes on as its owner.
        os.kill(guardian, signal.SIGKILL)
        wait_until(lambda: not alive(rank), "the rank ends with it", 30)
        again = wait_until(lambda: next((r["pid"] for r in cluster.get(job).get("ranks", []) if r["state"] == "running" and r["pid"] != rank), 0),
                           "it runs again", 30)
        self.assertEqual(ids_of(again), {str(IDS["ada"])})
        cluster.by("ada", "cancel", job)
        wait_until(lambda: not (cluster.node.jobs / job).exists(), "nothing is left of it", 30)
        self.assertFalse(alive(again) or (GROUPS / job).exists())

    def test_an_owner_without_account_is_refused_with_that_reason(self):
        for name, reason in (("eve", "the job's owner has no `account`"), ("mallory", "this node has no account 'nobody-there'")):
            job = self.cluster.submit_by(name, f"of-{name}", ["true"])
            wait_until(lambda job=job, reason=reason: reason in self.cluster.by(name, "describe", job).stdout, reason, 30)
            self.cluster.by(name, "cancel", job, check=False)
            jobs = self.cluster.worker_dir("node-1") / "nodes" / "node-1" / "jobs"
            wait_until(lambda job=job, jobs=jobs: not (jobs / job).exists(), "the node has nothing of it", 30)

    def test_one_owner_reaches_neither_another_nor_the_node(self):
        cluster = self.cluster
        job = cluster.submit_by("ada", "victim", ["sh", "-c", "echo secret >mine; chmod 644 mine; exec sleep 600"])
        rank, guardian = cluster.rank_pid(job), cluster.guardian_pid(job)
        pathlib.Path("/tmp/of-all-users").write_text("", encoding="utf-8")
        self.addCleanup(pathlib.Path("/tmp/of-all-users").unlink)
        run_dir = cluster.node.jobs / job / "run"
        secrets = [cluster.credentials("node-1") / "key.pem", cluster.dir / "security" / "ca.key", run_dir / "spec.yaml", run_dir / "guardian.json",
                   "/mnt/home/ada/victim/mine", cluster.worker_dir("node-1") / "nodes" / "node-1" / "jobs" / job / "prepare.json"]
        sockets = [run_dir / "guardian.sock", cluster.node.socket]
        command = ["python3", "-c", textwrap.dedent(ATTACK), str(rank), str(guardian), ":".join(map(str, secrets)), ":".join(map(str, sockets))]
        attack = cluster.submit_by("bob", "attack", command)
        text = wait_until(lambda: (lambda log: log if "attacked" in log else "")(self.log("bob", attack)), "it has tried", 60)
        tried = [line for line in text.splitlines() if " refused " in line or " GOT " in line]
        self.assertGreaterEqual(len(tried), 16 + 2 * len(secrets) + len(sockets) + 3, text)
        self.assertEqual([line for line in tried if " GOT " in line], [], text)
        self.assertTrue(alive(rank) and alive(guardian))
        for path in secrets + sockets:
            self.assertTrue(pathlib.Path(path).exists(), path)
        self.check_files(job)
        cluster.by("ada", "cancel", job)

    def check_files(self, victim):
        """Files of a job that are something else: a link to another's home, a FIFO for a log, a hard link."""
        cluster, home = self.cluster, pathlib.Path("/mnt/home/bob")
        link = home / "link"
        as_user("bob", "ln", "-s", "/mnt/home/ada/victim", link)
        for title, workdir in (("linked", link), ("dots", f"{home}/../ada/victim")):
            job = cluster.submit_by("bob", title, ["true"], workdir=workdir)
            wait_until(lambda job=job: cluster.get(job)["state"] == "failed", "another's home takes no output", 30)
            self.assertEqual([path.name for path in pathlib.Path("/mnt/home/ada/victim").iterdir() if title in path.name], [])
        script = 'cd "$(dirname "$(readlink /proc/$$/fd/1)")" && rm rank-0.log && mkfifo rank-0.log && ln -sf /mnt/home/ada/victim/mine ../../job.json; exec sleep 600'
        job = cluster.submit_by("bob", "fifo", ["sh", "-c", script])
        cluster.rank_pid(job)
        fifo = home / "fifo" / f"muster-fifo-{job}" / "logs" / "1" / "rank-0.log"
        wait_until(lambda: fifo.exists() and stat.S_ISFIFO(fifo.stat().st_mode), "the log is a FIFO", 30)
        began = time.monotonic()
        self.assertIn("no regular file", cluster.by("bob", "logs", job, check=False).stderr)
        self.assertLess(time.monotonic() - began, 10)
        # The worker goes on: it answers for others.
        self.assertEqual(cluster.json("nodes")[0]["state"], "ready")
        self.assertEqual(cluster.get(victim)["state"], "running")
        cluster.by("bob", "cancel", job)
        self.assertEqual(pathlib.Path("/mnt/home/ada/victim/mine").read_text(encoding="utf-8"), "secret\n")


if __name__ == "__main__":
    unittest.main()
