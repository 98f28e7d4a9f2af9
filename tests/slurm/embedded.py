"""Jobs in embedded mode in a Slurm lab: what the scenarios and the benchmark share.

  site = Site(self, nodes=3)                          # a lab with Muster's programs and a tiny model
  run = site.submit(site.train_job(nodes=2), "-N3")   # one allocation, one job
  run.wait_for_step(20)
  site.lab.kill_node("n2")
  run.wait_for_end()                                  # of the Slurm job; run.outcome() tells the job's

The programs come from the folder MUSTER_BIN_DIR, as for tests/support/cluster.py.
"""

import json
import pathlib
import re
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent),
                str(pathlib.Path(__file__).resolve().parents[1] / "support")]

import cluster  # noqa: E402
from lab import ENDED, PATIENCE_S, ROOT, Lab, require  # noqa: E402,F401

BIN = cluster.BIN.resolve()
# The minimum of a hand-written batch script; `muster slurm render` makes a fuller one.
SRUN = ("srun --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0 --cpu-bind=none "
        "--open-mode=append")


# How soon Slurm gives up a node that does not answer: after 12 s here instead of 28.
SOON_DOWN = {"slurmd_timeout_s": 5, "settings": {"MessageTimeout": 3}}


class Site:
    """A lab with what jobs need in its shared folder. Goes down with the test."""

    def __init__(self, test, nodes=3, **options):
        self.lab = Lab.of(test, nodes, visible=[BIN], **options)
        self.shared = self.lab.shared
        self.model = self.shared / "model"
        cluster.init_model(self.model)
        self.rows = cluster.write_rows(self.shared / "rows.jsonl")
        self.jobs = 0
        test.addCleanup(self._tell_if_failed, test)

    def train_job(self, **options):
        self.jobs += 1
        name = options.pop("name", f"job-{self.jobs}")
        return cluster.train_job(self.model, self.rows, self.shared / name, name=name, **options)

    def write_job(self, spec):
        path = self.shared / f"{spec['name']}.yaml"
        path.write_text(json.dumps(spec, indent=1), encoding="utf-8")
        return path

    def submit(self, spec, *options, srun="", auto="", script="{srun}", term_grace_s=3):
        """A hand-written batch script around srun muster-worker --auto."""
        path = self.write_job(spec)
        logs = self.shared / f"{spec['name']}-supervisors"
        logs.mkdir(exist_ok=True)
        line = (f"{SRUN} --output={logs}/%t.log {srun} {BIN}/muster-worker --auto --job {path} "
                f"--slots 1 --term-grace {term_grace_s} {auto}")
        job = self.lab.sbatch(script.format(srun=line), "--no-kill", "--requeue", "--exclusive",
                              *options)
        return Run(self, job, spec)

    def _tell_if_failed(self, test):
        if getattr(getattr(test, "_outcome", None), "success", True):
            return
        for path in sorted(self.shared.glob("**/*.log")) + sorted(self.shared.glob("*.out")):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            print(f"--- {path}", *lines[-40:], sep="\n", file=sys.stderr)


class Run:
    """One Slurm job with one of Muster's in it."""

    def __init__(self, site, job, spec, output=None):
        self.site, self.lab, self.slurm_job, self.spec = site, site.lab, job, spec
        self.output = pathlib.Path(output or spec["train"]["output"]["dir"])
        self.state = self.output / f"slurm-{job}"

    def _read(self, name):
        try:
            return json.loads((self.state / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def leader(self):
        """The leading node; None before there is one."""
        return self._read("leader.json")

    def outcome(self):
        return self._read("outcome.json")

    def metrics(self):
        return cluster.read_metrics(self.output)

    def trajectory(self):
        return cluster.trajectory(self.output)

    def steps_in_order(self):
        """As they were done: a step that was done again is there twice."""
        return cluster.steps_in_order(self.output)

    def last_step(self):
        return max(self.metrics(), default=0)

    def wait_for_step(self, step, timeout=PATIENCE_S):
        def reached():
            if self.last_step() >= step:
                return True
            state = self.slurm()["job_state"]
            if state in ENDED:
                raise AssertionError(f"the Slurm job is {state} before step {step}")
            return False
        self.lab.wait_until(reached, f"step {step}", timeout)

    def gang(self):
        """The nodes that have ranks."""
        return [node for node in self.lab.plan.names() if node in self.lab.nodes_on
                and "muster-trainer" in processes_on(self.lab, node)]

    def member(self):
        """A node that has a rank and does not lead."""
        return next(node for node in self.gang() if node != self.leader()["node"])

    def slurm(self):
        return self.lab.job(self.slurm_job)

    def wait_for_end(self, timeout=PATIENCE_S):
        """The state of the Slurm job when it has ended for good."""
        return self.lab.wait_until(
            lambda: self.slurm()["job_state"] in ENDED and self.slurm()["job_state"],
            "the Slurm job ends", timeout)

    def wait_for_restart(self, count=1, timeout=PATIENCE_S):
        self.lab.wait_until(lambda: self.slurm()["restart_cnt"] >= count
                            and self.slurm()["job_state"] == "RUNNING",
                            f"the Slurm job runs for the {count + 1}. time", timeout)

    def exit_code(self):
        """Of the batch script."""
        text = self.lab.scontrol("show", "job", self.slurm_job)
        return int(re.search(r"ExitCode=(\d+):", text).group(1))

    def muster(self, *words, node=None, check=True):
        """A command of Muster's for this job's coordinator, on the node that leads."""
        node = node or self.leader()["node"]
        return self.lab.run(BIN / "muster", *words, node=node, check=check)


def processes_on(lab, node):
    """Names of Muster's programs that run on a node."""
    programs = [program_of(pid) for pid in lab.processes(node)]
    return [name for name in programs if name.startswith("muster-")]


def program_of(pid):
    """The name of the program that a process runs; empty when it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""
