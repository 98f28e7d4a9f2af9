#!/usr/bin/env python3
"""A cluster goes from one release to the next and back, process by process, while two jobs train: no step is done again.

The release of the tag is built in a folder of its own, unless --old names programs; the other programs are MUSTER_BIN_DIR's, or
--new's. Prints {"seed": 0, "violations": N, ...} for tests/support/long_run.py.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, ROOT, Cluster, read_metrics, run, wait_until  # noqa: E402

STEPS_BETWEEN = 10


def build(tag, folder):
    def call(*command):
        subprocess.run(list(map(str, command)), cwd=folder, check=True, stdout=sys.stderr)

    call("git", "clone", "--quiet", "--branch", tag, ROOT, folder / "source")
    torch = os.environ.get("MUSTER_LIBTORCH_DIR")
    call("cmake", "-S", "source", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DMUSTER_TESTS=OFF",
         *([f"-DMUSTER_LIBTORCH_DIR={torch}"] if torch else []))
    call("ninja", "-C", "build", "installed")
    return folder / "build" / "bin"


class Upgrade:
    """Replaces processes one by one, and counts what jobs have lost by it."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.jobs = [cluster.submit(cluster.train_job(steps=10**5, every=50)) for _ in range(2)]
        for job in self.jobs:
            cluster.wait_for_step(job, STEPS_BETWEEN)
        self.ranks = {job: cluster.ranks(job) for job in self.jobs}
        self.violations = []

    def to(self, programs):
        plan = run("muster", "upgrade", "plan", "--to", programs, "--dir", self.cluster.dir, "-o", "json",
                   programs=self.cluster.programs, check=False)
        planned = json.loads(plan.stdout)
        actions = {job["id"]: job["action"] for job in planned["jobs"]}
        if plan.returncode != 0 or set(actions.values()) != {"adopted"}:
            self.violations.append(f"the plan to {planned['to']} is {actions}, code {plan.returncode}")
        self.cluster.programs = programs
        kinds = [part["part"] for part in planned["parts"]]
        for kind in dict.fromkeys(kinds):
            for pid in self.pids(kind):
                self.replace(pid, f"{kind} {pid} by {planned['to']}")

    def pids(self, kind):
        if kind == "coordinator":
            return [self.cluster.coordinator_pid()]
        return [node["pid"] for node in self.cluster.json("nodes")]

    def replace(self, pid, what):
        os.kill(pid, signal.SIGKILL)
        self.cluster.up()
        wait_until(lambda: all(node["state"] == "ready" for node in self.cluster.json("nodes")), "all nodes are ready")
        for job in self.jobs:
            self.cluster.wait_for_step(job, max(read_metrics(self.cluster.output(job))) + STEPS_BETWEEN)
            got = self.cluster.get(job)
            if len(got["attempts"]) != 1 or {r["rank"]: r["pid"] for r in got["ranks"]} != self.ranks[job]:
                self.violations.append(f"{what}: {job} has {len(got['attempts'])} attempts, "
                                       f"{[attempt['cause'] for attempt in got['attempts']]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tag", default="v0.2.0")
    parser.add_argument("--old", type=pathlib.Path)
    parser.add_argument("--new", type=pathlib.Path, default=BIN)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-test-") as temp:
        old = args.old or build(args.tag, pathlib.Path(temp))
        cluster = Cluster(None, programs=old)
        try:
            upgrade = Upgrade(cluster)
            for programs in (args.new, old):
                upgrade.to(programs)
            steps = {job: max(read_metrics(cluster.output(job))) for job in upgrade.jobs}
            for job in upgrade.jobs:
                cluster.muster("cancel", job)
                cluster.wait(job)
        finally:
            cluster.close()
    print(json.dumps({"seed": 0, "violations": len(upgrade.violations), "found": upgrade.violations,
                      "steps": list(steps.values())}))
    return 1 if upgrade.violations else 0


if __name__ == "__main__":
    sys.exit(main())
