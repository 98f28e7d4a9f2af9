"""An allocation of a scripted Slurm on loopback: one `muster-worker --auto` per node as srun would
start it, with scontrol and scancel that answer from a file and note what they were asked. For tests
of the supervisors; what the real Slurm does is tested in tests/slurm.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from cluster import BIN, alive, descendants, init_model, kill, processes_of, read_metrics
from cluster import train_job, wait_until, write_rows

JOB_ID = 4711

FAKE_COMMAND = """#!/usr/bin/env python3
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["FAKE_SLURM"])
state = json.loads((folder / "state.json").read_text())
name = pathlib.Path(sys.argv[0]).name
with open(folder / "said", "a") as said:
    said.write(" ".join([name, *sys.argv[1:]]) + "\\n")
# So many times it does not answer, as while slurmctld restarts.
fails = folder / "fails"
left = int(fails.read_text()) if fails.exists() else 0
if left > 0 and "show" not in sys.argv:
    fails.write_text(str(left - 1))
    state["down"] = True
if state.pop("down", False):
    print("slurm_load_jobs error: Unable to contact slurm controller", file=sys.stderr)
    sys.exit(1)
if "config" in sys.argv:
    print(f"KillWait = {state.get('KillWait', 30)} sec")
elif "show" in sys.argv:
    print(" ".join(f"{key}={value}" for key, value in state.items()))
"""


class Allocation:
    """Nodes n0, n1, ... each with a supervisor. What an attribute of `slurm` says, scontrol says."""

    def __init__(self, test, nodes=3, arguments=()):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-alloc-"))
        test.addCleanup(self.close)
        self.nodes = [f"n{i}" for i in range(nodes)]
        self.arguments = [str(a) for a in arguments]
        self.programs = BIN
        self.tasks = {}
        self.outcomes = {}
        self.run = 0
        self.step_id = 0
        self.output = self.root / "out"
        self.shared = self.output / f"slurm-{JOB_ID}"
        self._make_fake_slurm()

    # --- the scripted Slurm ---

    def _make_fake_slurm(self):
        bin_dir = self.root / "bin"
        bin_dir.mkdir()
        for name in ("scontrol", "scancel", "squeue"):
            (bin_dir / name).write_text(FAKE_COMMAND, encoding="utf-8")
            (bin_dir / name).chmod(0o755)
        self.slurm = {"JobId": JOB_ID, "JobName": "job", "JobState": "RUNNING", "Requeue": "1",
                      "Restarts": "0", "BatchHost": self.nodes[0], "BatchFlag": "1",
                      "NodeList": ",".join(self.nodes), "TimeLimit": "UNLIMITED",
                      "EndTime": "Unknown"}
        self.write_slurm()

    def write_slurm(self, **changes):
        self.slurm.update(changes)
        beside = self.root / "state.new"
        beside.write_text(json.dumps(self.slurm), encoding="utf-8")
        beside.rename(self.root / "state.json")

    def fail_next(self, count):
        """The next orders, scancel and scontrol requeue, are not taken."""
        (self.root / "fails").write_text(str(count), encoding="utf-8")

    def said(self, *words):
        """What the commands were asked that holds all the words."""
        path = self.root / "said"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [line for line in lines if all(word in line for word in words)]

    # --- the job ---

    def write_job(self, *, steps=120, nodes=2, every=20, spares=0, min_nodes=0, **train):
        model = self.root / "model"
        if not model.exists():
            init_model(model)
            write_rows(self.root / "rows.jsonl")
        job = train_job(model, self.root / "rows.jsonl", self.output, steps=steps, nodes=nodes,
                        every=every, **train)
        job["resources"].update({"spares": spares} if spares else {})
        job["resources"].update({"min_nodes": min_nodes} if min_nodes else {})
        (self.root / "job.yaml").write_text(json.dumps(job), encoding="utf-8")

    # --- the programs ---

    def break_coordinators(self):
        """None can be started on any node from now on, as with a library that is gone; what runs goes on."""
        (self.programs / "muster-coordinator").rename(self.programs / "muster-coordinator.sound")
        (self.programs / "muster-coordinator").symlink_to(shutil.which("false"))

    def mend_coordinators(self):
        (self.programs / "muster-coordinator.sound").replace(self.programs / "muster-coordinator")

    def use_own_programs(self):
        """Before start(): a folder in which break_coordinators() may do what it does. Programs look for each other
        where they are themselves, so the worker is a copy."""
        self.programs = self.root / "programs"
        self.programs.mkdir()
        for program in BIN.iterdir():
            if program.name == "muster-worker":
                shutil.copy2(program, self.programs)
            elif program.name.startswith("muster-"):
                (self.programs / program.name).symlink_to(program.resolve())

    # --- the tasks ---

    def environment(self, index):
        node = self.nodes[index]
        tmp = self.root / "tmp" / node
        tmp.mkdir(parents=True, exist_ok=True)
        values = {"SLURM_JOB_ID": JOB_ID, "SLURM_CLUSTER_NAME": "lab", "SLURM_STEP_ID": self.step_id,
                  "SLURM_NODEID": index, "SLURM_PROCID": index, "SLURM_LOCALID": 0,
                  "SLURM_NNODES": len(self.nodes), "SLURM_JOB_NUM_NODES": len(self.nodes),
                  "SLURM_STEP_NUM_NODES": len(self.nodes), "SLURM_NTASKS": len(self.nodes),
                  "SLURM_STEP_NUM_TASKS": len(self.nodes),
                  "SLURM_JOB_NODELIST": ",".join(self.nodes),
                  "SLURM_STEP_NODELIST": ",".join(self.nodes), "SLURMD_NODENAME": node,
                  "SLURM_TASKS_PER_NODE": f"1(x{len(self.nodes)})" if len(self.nodes) > 1 else "1",
                  "SLURM_STEP_TASKS_PER_NODE":
                      f"1(x{len(self.nodes)})" if len(self.nodes) > 1 else "1",
                  "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1", "SLURM_JOB_NAME": "job",
                  "SLURM_JOB_USER": "somebody", "TMPDIR": tmp, "FAKE_SLURM": self.root}
        values["SLURM_SRUN_COMM_PORT"] = 40000 + self.step_id
        if self.run:
            values["SLURM_RESTART_COUNT"] = self.run
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
        kept["PATH"] = f"{self.root / 'bin'}:{kept['PATH']}"
        return {**kept, **{k: str(v) for k, v in values.items()}}

    def command(self, _index):
        return [str(self.programs / "muster-worker"), "--auto", "--job", str(self.root / "job.yaml"),
                "--interface", "lo", *self.arguments]

    def start(self, only=None):
        for index, node in enumerate(self.nodes):
            if only is not None and node not in only:
                continue
            log = open(self.root / f"task-{node}.log", "ab")
            self.tasks[node] = subprocess.Popen(self.command(index), env=self.environment(index),
                                                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.root)
            log.close()

    def requeue(self):
        """What Slurm does with a requeued job: everything ends, and it begins again."""
        self.end_tasks()
        self.run += 1
        self.write_slurm(JobState="RUNNING", Restarts=str(self.run))
        self.start()

    def start_again(self):
        """Another srun in the same allocation."""
        self.tasks = {}
        self.step_id += 1
        self.start()

    def wait(self, timeout=120):
        """The exit codes of all tasks that were not killed."""
        deadline = time.monotonic() + timeout
        codes = {}
        for node, task in self.tasks.items():
            try:
                codes[node] = task.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{node} has not ended within {timeout} s\n{self.logs()}")
        return {node: code for node, code in codes.items() if code != -signal.SIGKILL}

    def kill_node(self, node):
        """Every process of the node at once."""
        task = self.tasks[node]
        kill(task.pid, signal.SIGSTOP)  # it must not see its children die
        ranks = [pid for pid, _ in processes_of(self.root / "tmp" / node)]
        for pid in {*ranks, *descendants(task.pid), *self._ranks_of(node), task.pid}:
            kill(pid)
        task.wait(60)

    def rank(self, node):
        """The process of the node's rank."""
        return next(pid for pid, words in processes_of(self.root / "tmp" / node) if "muster-trainer train" in words)

    def mark(self, node):
        """The variable that all processes of the node have."""
        return f"SLURMD_NODENAME={node}"

    def _ranks_of(self, node):
        """Guardians and ranks belong to no step; their environment names the node."""
        found = []
        mark = f"{self.mark(node)}\0".encode()
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                environ = pathlib.Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if mark in environ and str(self.root).encode() in environ:
                found.append(int(entry))
        return found

    # --- what there is to see ---

    def leader(self):
        path = self.shared / "leader.json"
        if not path.exists():
            return None
        leader = json.loads(path.read_text(encoding="utf-8"))
        return leader if leader["run"] == self.run else None

    def outcome(self):
        return json.loads((self.shared / "outcome.json").read_text(encoding="utf-8"))

    def step(self):
        return max(read_metrics(self.output), default=0)

    def wait_for_step(self, step, timeout=120):
        wait_until(lambda: self.step() >= step or self._over(), f"step {step}\n", timeout)
        if self.step() < step:
            raise AssertionError(f"the tasks have ended before step {step}\n{self.logs()}")

    def _over(self):
        return all(task.poll() is not None for task in self.tasks.values())

    def logs(self):
        texts = []
        for path in [*self.root.glob("task-*.log"), *self.shared.glob("logs/*"), *self.root.glob("tmp/**/*.log")]:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-40:]
            texts.append("\n".join([f"--- {path.name}", *lines]))
        return "\n".join(texts)

    def end_tasks(self):
        for node, task in self.tasks.items():
            if task.poll() is None:
                self.kill_node(node)
        self.tasks = {}

    def leftovers(self):
        """By their nodes' directories: the environment of what belongs to a job is cleaned."""
        found = {pid for pid, _ in processes_of(self.root / "tmp") if alive(pid)}
        found.update(pid for node in self.nodes for pid in self._ranks_of(node) if alive(pid))
        return sorted(found)

    def close(self):
        self.end_tasks()
        for pid in self.leftovers():
            kill(pid)
        shutil.rmtree(self.root, ignore_errors=True)
