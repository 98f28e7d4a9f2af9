#!/usr/bin/env python3
"""A real Slurm of several nodes on this machine, in namespaces of its own, for tests and for people.

  with Lab(nodes=3) as lab:
      job = lab.sbatch("srun hostname", "-N2")
      lab.wait_for_state(job, "RUNNING")
      lab.kill_node("n2")

  lab.py up [options]              until Ctrl-C; prints how to get in from another terminal
  lab.py run [options] -- COMMAND  runs it on the login node, and takes the lab down again
  lab.py shell [options]           the same with a shell

A lab is a router, which also is login node and runs slurmctld (host name ctl, 10.77.0.100), and nodes
n1, n2, ... (10.77.0.1, ...), each with a network, a host name, a boot id, a process table, /tmp and
/dev/shm of its own. All files of the machine but those are on every node; `lab.shared` stands for the cluster's shared
file system. No root is needed where user namespaces are on. Nothing of the host is changed, labs do not
see each other, and when the process that made one ends, however it does, the lab ends with it.
"""

import argparse
import contextlib
import dataclasses
import getpass
import json
import os
import pathlib
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent),
                str(pathlib.Path(__file__).resolve().parents[1] / "support")]

import lab_config  # noqa: E402
from cluster import children_of, descendants  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "ip", "unshare", "nsenter", "setpriv")
SEARCH = "/usr/sbin:/sbin:/usr/bin:/bin"
POLL_S = 0.05
PATIENCE_S = 120  # for what only has to happen
ORDER_S = 60  # the longest that an order to the lab may take
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
         "DEADLINE", "OUT_OF_MEMORY")


def unshare_words():
    words = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child",
             "--mount-proc"]
    # Not mapped to root: slurmd as root wants to set groups, which such a namespace refuses.
    return words if os.getuid() == 0 else [*words, "--user", "--map-current-user", "--keep-caps"]


def why_not():
    """Why there can be no lab here and what to change, in one line; empty if there can."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=SEARCH)]
    if missing:
        return f"{', '.join(missing)} not found: run deploy/install-deps --tests"
    done = subprocess.run([*unshare_words(), "true"], capture_output=True, text=True, check=False,
                          timeout=20, env={**os.environ, "PATH": SEARCH})
    if done.returncode == 0:
        return ""
    said = " ".join(done.stderr.split())
    if os.getuid() == 0:
        return (f"namespaces are refused to this root ({said}): give the container CAP_SYS_ADMIN and "
                "CAP_NET_ADMIN (docker run --privileged), or run the tests outside of it")
    return (f"user namespaces are refused ({said}): set the sysctls user.max_user_namespaces=10000, "
            "kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0 "
            "where they exist, or run the tests as root")


class LabError(Exception):
    """The lab did not carry out a request; the message names its logs."""


class Lab:
    """One lab. All methods belong to the thread that made it."""

    def __init__(self, nodes=3, *, visible=(), keep=False, settings=(), **options):
        """`options` are fields of lab_config.Plan. `visible`: paths below /tmp that every node must see.
        `keep`: leave the folder with logs, state and the nodes' files when the lab goes down."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-lab-")).resolve()
        self.plan = lab_config.Plan(folder=str(self.folder), user=getpass.getuser(), nodes=nodes,
                                    settings=tuple(dict(settings).items()), **options)
        self.shared = self.folder / "shared"
        self.keep = keep or bool(os.environ.get("MUSTER_LAB_KEEP"))
        self.seconds_up = None
        self.nodes_on = set()
        self._visible = [self.folder, ROOT, *map(pathlib.Path, visible)]
        self._process = None
        self._connection = None
        self._down = False
        self._first = None  # the lab's process 1, as this process knows it

    @classmethod
    def of(cls, test, *arguments, **options):
        """A lab that goes down when the test (a unittest.TestCase) ends, and whose folder is kept when
        the test has failed; skips the test where there can be no lab."""
        require(test)
        lab = cls(*arguments, **options)

        def down():
            if not getattr(getattr(test, "_outcome", None), "success", True):
                lab.keep = True
            lab.down()
        test.addCleanup(down)
        lab.up()
        return lab

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, kind, *_):
        self.keep = self.keep or kind not in (None, KeyboardInterrupt)
        self.down()

    # Up and down.

    def up(self, timeout=PATIENCE_S):
        """Returns when every node is idle."""
        began = time.monotonic()
        try:
            self._write_files()
            self._start()
            self._order("start_controller", clean=True)
            for name in self.plan.names():
                self.revive_node(name)
            self.wait_until(self._all_idle, "every node is idle", timeout)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        self.seconds_up = time.monotonic() - began

    def down(self):
        """Ends every process of the lab, and removes its folder. Once more does nothing."""
        if self._down:
            return
        self._down = True
        if self._process:
            self._connection.close()
            self._signal_first(signal.SIGKILL)  # at once, also where it is busy
            self._process.wait(timeout=30)
            self._process = None
        if self.keep:
            print(f"the lab's folder is kept: {self.folder}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder)

    def _write_files(self):
        for name in ("etc", "munge", "ctl/state", "logs", "shared", "dev",
                     *(f"nodes/{node}/{part}" for node in self.plan.names()
                       for part in ("spool", "tmp"))):
            (self.folder / name).mkdir(parents=True)
        for node in self.plan.names():
            (self.folder / "nodes" / node / "tmp").chmod(0o1777)
        for number in range(self.plan.gpus):
            (self.folder / "dev" / f"gpu{number}").touch()
        for name, text in (("slurm.conf", lab_config.slurm_conf(self.plan)),
                           ("gres.conf", lab_config.gres_conf(self.plan)),
                           ("cgroup.conf", lab_config.CGROUP_CONF),
                           ("resolv.conf", lab_config.resolv_conf(self.plan))):
            (self.folder / "etc" / name).write_text(text, encoding="utf-8")
        key = self.folder / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        below_tmp = [str(path) for path in self._visible if pathlib.Path("/tmp") in path.parents]
        (self.folder / "plan.json").write_text(
            json.dumps({**dataclasses.asdict(self.plan), "visible": below_tmp}), encoding="utf-8")

    def _start(self):
        self._connection, theirs = socket.socketpair()
        self._connection.settimeout(ORDER_S)
        with theirs, open(self.folder / "logs" / "lab.log", "ab") as log:
            self._process = subprocess.Popen(
                [*unshare_words(), sys.executable, "-S",
                 str(pathlib.Path(__file__).with_name("lab_init.py")), "lab", str(theirs.fileno()),
                 str(self.folder)],
                pass_fds=[theirs.fileno()], env=self.environment(), cwd="/", start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._answer("starting")
        self._first = next(iter(children_of(self._process.pid)))

    def _order(self, order, **options):
        self._connection.sendall(json.dumps({"order": order, **options}).encode() + b"\n")
        return self._answer(order)

    def _answer(self, what):
        text = b""
        while not text.endswith(b"\n"):
            part = self._connection.recv(65536)
            if not part:
                raise LabError(f"{what}: the lab has ended\n{self.logs('lab')}")
            text += part
        answer = json.loads(text)
        if "error" in answer:
            raise LabError(f"{what}: {answer['error']}\n{self.logs('lab', 'node-')}")
        return answer["ok"]

    def _signal_first(self, number):
        if self._first:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._first, number)

    def _all_idle(self):
        done = self.run("sinfo", "-h", "-p", "main", "-o", "%T %D", check=False)
        return done.stdout.strip() == f"idle {self.plan.nodes}"

    # Running something inside.

    def environment(self, extra=None):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("SLURM_", "SBATCH_", "SALLOC_", "SQUEUE_", "SINFO_"))}
        return {**kept, "SLURM_CONF": str(self.folder / "etc" / "slurm.conf"),
                "PATH": f"{os.environ.get('PATH', '')}:{SEARCH}", **(extra or {})}

    def words(self, command, node=None, cwd=None):
        """The command line that runs a command on a node, by default on the login node, for a process
        with environment()."""
        target = self.node_process(node) if node else self._first
        user = ["--user", "--preserve-credentials"] if os.getuid() else []
        return ["nsenter", f"--target={target}", *user, "--net", "--mount", "--uts", "--ipc", "--pid",
                # A folder from outside would be one of the mounts outside.
                "sh", "-c", 'cd "$0" && exec "$@"', str(cwd or self.shared), *map(str, command)]

    def run(self, *command, node=None, timeout=PATIENCE_S, check=True, env=None, cwd=None, stdin=None):
        """Runs a command to its end; `check` raises where it fails."""
        done = subprocess.run(self.words(command, node, cwd), env=self.environment(env), input=stdin,
                              stdin=None if stdin is not None else subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout, check=False)
        if check and done.returncode != 0:
            raise LabError(f"{shlex.join(map(str, command))} ended with {done.returncode}:\n"
                           f"{done.stdout}{done.stderr}{self.logs('slurmctld.log')}")
        return done

    def popen(self, *command, node=None, env=None, cwd=None, **options):
        return subprocess.Popen(self.words(command, node, cwd), env=self.environment(env),
                                stdin=subprocess.DEVNULL, **options)

    def srun(self, *words, **options):
        return self.run("srun", *words, **options)

    def scontrol(self, *words, **options):
        return self.run("scontrol", *words, **options).stdout

    def sbatch(self, script, *options, **more):
        """Submits a script, or the lines of one; the number of the job. Output goes to output(job)."""
        if not isinstance(script, pathlib.Path):
            text, script = script, self.shared / f"batch-{secrets.token_hex(4)}.sh"
            script.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        done = self.run("sbatch", "--parsable", f"--output={self.shared}/%j.out", "--open-mode=append",
                        *options, script, **more)
        return int(done.stdout.split(";")[0])

    def output(self, job):
        """What a job of sbatch() has printed so far."""
        path = self.shared / f"{job}.out"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    # Slurm's answers.

    def squeue(self):
        """All jobs that slurmctld knows, also those that have ended, as `squeue --json` tells them."""
        return json.loads(self.run("squeue", "--json").stdout)["jobs"]

    def job(self, job):
        found = [entry for entry in self.squeue() if entry["job_id"] == int(job)]
        if not found:
            raise LabError(f"Slurm knows no job {job}")
        return found[0]

    def wait_for_state(self, job, *states, timeout=PATIENCE_S):
        """Until the job is in one of the states (RUNNING, ...), which is returned as job() tells it. Fails
        at once when it has come to another end."""
        def reached():
            seen = self.job(job)
            state = seen["job_state"]
            if state not in states and state in ENDED:
                raise LabError(f"job {job} is {state} instead of {' or '.join(states)}:\n"
                               f"{self.output(job)}{self.logs('slurmctld.log')}")
            return seen if state in states else None
        return self.wait_until(reached, f"job {job} is {' or '.join(states)}", timeout)

    def start_again_now(self, job, without="", options=()):
        """Runs a requeued job again in two seconds instead of after cred_expire. In the second of the requeue its
        nodes would take the new credential for the old one, which is revoked. `without`: the nodes that the
        requeue excludes. `options`: what else `scontrol update` changes of the job."""
        def settled():
            said = self.scontrol("show", "job", job)
            if "JobState=PENDING Reason=BeginTime" in said:
                return f"ExcNodeList={without}" in said
            # The polling is slow: it may run again already, or have ended.
            return "Restarts=0" not in said and not re.search("JobState=(PENDING|COMPLETING)", said)
        self.wait_until(settled, f"job {job} is requeued")
        self.run("scontrol", "update", f"jobid={job}", "StartTime=now+2", *options, check=False)

    def wait_for_output(self, job, text, timeout=PATIENCE_S):
        return self.wait_until(lambda: text in self.output(job) and self.output(job),
                               f"job {job} prints {text!r}", timeout)

    def node_state(self, name):
        """As `sinfo` tells it in its long form: idle, mixed, allocated, down, ...; a * behind it says that
        the node does not respond."""
        return self.run("sinfo", "-h", "-p", "main", "-n", name, "-o", "%T").stdout.strip()

    def wait_for_node(self, name, *states, timeout=PATIENCE_S):
        return self.wait_until(lambda: self.node_state(name) in states,
                               f"node {name} is {' or '.join(states)}", timeout)

    def wait_until(self, condition, what, timeout=PATIENCE_S):
        """Polls until the condition gives something true, and returns that. Asking takes a third of the time at
        most: the others need the processors."""
        deadline = time.monotonic() + timeout
        while True:
            began = time.monotonic()
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                queue = self.run("squeue", "-a", "-t", "all", check=False).stdout
                raise LabError(f"not within {timeout} s: {what}\n{queue}{self.logs('slurmctld.log')}")
            time.sleep(max(POLL_S, 2 * (time.monotonic() - began)))

    # Faults.

    def kill_node(self, name):
        """Ends all processes of the node at once: its peers are told, as its kernel closes what they had.
        Its memory (/dev/shm) is lost, its /tmp is kept."""
        self._order("kill_node", name=name)
        self.nodes_on.discard(name)

    def power_loss(self, name):
        """As kill_node, but peers get no notice."""
        self.cut_link(name)
        self.kill_node(name)

    def revive_node(self, name):
        """Boots a node that was killed; returns before Slurm has it back (wait_for_node)."""
        self._order("start_node", name=name)
        self.nodes_on.add(name)

    def cut_link(self, name, networks=None):
        """All packets to and from the node are lost without an error."""
        self._order("set_link", name=name, up=False, networks=self._networks(networks))

    def heal_link(self, name, networks=None):
        self._order("set_link", name=name, up=True, networks=self._networks(networks))

    def _networks(self, networks):
        return list(range(self.plan.networks) if networks is None else networks)

    def stop_controller(self, kill=False):
        self._order("stop_controller", number=int(signal.SIGKILL if kill else signal.SIGTERM))

    def start_controller(self):
        self._order("start_controller")

    def restart_controller(self, kill=False, timeout=30):
        """Slurm's own controller, slurmctld, with the state that it has saved."""
        self.stop_controller(kill)
        self.start_controller()
        self.wait_until(lambda: self.run("scontrol", "ping", check=False).stdout.count("UP"),
                        "slurmctld answers", timeout)

    # Looking in.

    def tmp(self, node):
        """The node's own /tmp, as seen from outside."""
        return self.folder / "nodes" / node / "tmp"

    def address(self, node, network=0):
        return lab_config.address_of(node, network)

    def processes(self, node=None):
        """The processes of a node, or of the whole lab, as this process knows them."""
        return descendants(self.node_process(node) if node else self._process.pid)

    def node_process(self, name):
        """Process 1 of a node: everything on the node is below it."""
        for pid in children_of(self._first):
            words = command_line(pid)
            if words[:1] == ["unshare"] and words[-1] == name:
                return next(iter(children_of(pid)))
        raise LabError(f"node {name} is off")

    def logs(self, *names, lines=25):
        """The ends of the logs whose names begin so; of all without a name."""
        parts = []
        for path in sorted((self.folder / "logs").glob("*")):
            if not names or path.name.startswith(names):
                text = path.read_text(encoding="utf-8", errors="replace")
                parts += [f"--- {path}", *text.splitlines()[-lines:]]
        return "\n".join(parts) + "\n"


def require(test):
    """Skips the test, and says so by one line, where there can be no lab."""
    reason = why_not()
    if reason:
        print(f"SKIPPED: no Slurm lab: {reason}", file=sys.stderr, flush=True)
        test.skipTest(reason)


def command_line(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []
    return [word.decode(errors="replace") for word in words]


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description="A Slurm of several nodes on this machine.")
    parser.add_argument("command", choices=("up", "run", "shell"))
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--cpus", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=0, help="of each node")
    parser.add_argument("--cpu-nodes", type=int, default=0, help="how many of the nodes have no GPUs")
    parser.add_argument("--networks", type=int, default=1, help="interfaces of each node")
    parser.add_argument("--dead-name-server", action="store_true")
    parser.add_argument("--slurmd-timeout", type=int, default=10, metavar="SECONDS")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="a key of slurm.conf")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    split = arguments.index("--") if "--" in arguments else len(arguments)
    given = parser.parse_args(arguments[:split])
    given.words = arguments[split + 1:]
    if (given.command == "run") != bool(given.words):
        parser.error("`run` takes a command behind --, and only it does")
    if any(not re.fullmatch(r"\w+=.*", pair) for pair in given.set):
        parser.error("--set takes KEY=VALUE")
    return given


def main(arguments):
    given = parse_arguments(arguments)
    reason = why_not()
    if reason:
        print(f"error: no Slurm lab: {reason}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Lab(given.nodes, cpus=given.cpus, gpus=given.gpus, cpu_nodes=given.cpu_nodes,
             networks=given.networks, dead_name_server=given.dead_name_server,
             slurmd_timeout_s=given.slurmd_timeout, keep=given.keep,
             settings=[pair.split("=", 1) for pair in given.set]) as lab:
        print(f"{given.nodes} nodes up in {lab.seconds_up:.1f} s; shared folder {lab.shared}",
              file=sys.stderr)
        if given.command == "up":
            enter = lab.words([os.environ.get("SHELL", "/bin/sh")])
            print(f"from another terminal: SLURM_CONF={lab.folder}/etc/slurm.conf {shlex.join(enter)}\n"
                  "Ctrl-C takes it down", file=sys.stderr)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
            return 0
        command = given.words if given.command == "run" else [os.environ.get("SHELL", "/bin/sh")]
        done = subprocess.run(lab.words(command), env=lab.environment(), check=False)
        return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
