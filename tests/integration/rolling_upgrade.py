#!/usr/bin/env python3
"""A cluster goes from one release to the next, process by process, while two jobs train and their ranks die: no step is done again.

  rolling_upgrade.py [--tag v0.2.0]                       one coordinator on SQLite and four workers, to these programs and back
  rolling_upgrade.py --tag v0.3.0-alpha --coordinators 3  on an etcd, to these programs with a protocol and store version more

The release of the tag is built in a folder of its own, unless --old names programs; these programs are MUSTER_BIN_DIR's, or --new's.
With several coordinators they are built from this tree's last commit with raised versions, unless --new names them. A store that has
been converted does not go back. Prints {"seed": 0, "violations": N, ...} for tests/support/long_run.py.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, ROOT, Cluster, processes_of, read_metrics, run, wait_until  # noqa: E402

STEPS_BETWEEN = 10
NODES = 4
TABLE = pathlib.Path("common", "base", "version_table.h")
RAISED = ("kProtocols", "kEtcdFormats", "kGuardianPackets")


def build(revision, folder, raised=()):
    def call(*command):
        subprocess.run(list(map(str, command)), cwd=folder, check=True, stdout=sys.stderr)

    call("git", "clone", "--quiet", ROOT, folder / "source")
    call("git", "-C", "source", "checkout", "--quiet", "--detach", revision)
    table = folder / "source" / TABLE
    for name in raised:
        text, replaced = re.subn(rf"({name}{{\d+, )(\d+)}}", lambda found: f"{found[1]}{int(found[2]) + 1}}}", table.read_text())
        if replaced != 1:
            raise SystemExit(f"{TABLE} has no {name} whose newest version could be raised")
        table.write_text(text)
    torch = os.environ.get("MUSTER_LIBTORCH_DIR")
    call("cmake", "-S", "source", "--preset", "release", "-DMUSTER_TESTS=OFF", *([f"-DMUSTER_LIBTORCH_DIR={torch}"] if torch else []))
    call("ninja", "-C", "source/build/release", "installed")
    return folder / "source" / "build" / "release" / "bin"


class Upgrade:
    """Replaces processes one by one, kills ranks between, and counts what jobs have lost by it."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.jobs = [cluster.submit(cluster.train_job(steps=10**5, every=50)) for _ in range(2)]
        for job in self.jobs:
            cluster.wait_for_step(job, STEPS_BETWEEN)
        self.ranks = {job: cluster.ranks(job) for job in self.jobs}
        self.attempts = dict.fromkeys(self.jobs, 1)
        self.violations, self.replaced, self.killed = [], 0, 0

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
            for number, pid in enumerate(self.pids(kind)):
                self.replace(pid, f"{kind} {pid} by {planned['to']}")
                if number % 2 == 0:
                    self.kill_rank(self.jobs[number // 2 % 2], f"after {kind} {pid}")

    def pids(self, kind):
        if kind == "worker":
            return [node["pid"] for node in self.cluster.json("nodes")]
        leads = self.cluster.up()["pid"]
        several = {pid for pid, _ in processes_of(self.cluster.dir / "coordinators")}
        return [*sorted(several - {leads}), leads]  # the leader's death is seen by all others of the new release

    def replace(self, pid, what):
        os.kill(pid, signal.SIGKILL)
        self.cluster.up()
        wait_until(lambda: all(node["state"] == "ready" for node in self.cluster.json("nodes")), "all nodes are ready")
        self.replaced += 1
        self.check(what)

    def kill_rank(self, job, what):
        """In the middle of an upgrade: old and new programs recover it together."""
        self.cluster.kill_rank(job, 1)
        self.killed += 1
        self.attempts[job] += 1
        wait_until(lambda: len(self.cluster.get(job)["attempts"]) == self.attempts[job], f"{job} is recovered {what}")
        before = self.ranks[job]
        self.ranks[job] = self.cluster.ranks(job)
        self.check(f"rank 1 of {job} killed {what}")
        if self.ranks[job][0] != before[0]:
            self.violations.append(f"{what}: rank 0 of {job} was started again, which had not died")

    def check(self, what):
        for job in self.jobs:
            self.cluster.wait_for_step(job, max(read_metrics(self.cluster.output(job))) + STEPS_BETWEEN)
            got = self.cluster.get(job)
            if len(got["attempts"]) != self.attempts[job] or {r["rank"]: r["pid"] for r in got["ranks"]} != self.ranks[job]:
                self.violations.append(f"{what}: {job} has {len(got['attempts'])} attempts, "
                                       f"{[attempt['cause'] for attempt in got['attempts']]}")
            lost = [attempt["lost_steps"] for attempt in got["attempts"]]
            if any(lost):
                self.violations.append(f"{what}: {job} has lost {lost} steps")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tag", default="v0.2.0")
    parser.add_argument("--old", type=pathlib.Path)
    parser.add_argument("--new", type=pathlib.Path)
    parser.add_argument("--coordinators", type=int, default=1)
    args = parser.parse_args()
    several = args.coordinators > 1
    with tempfile.TemporaryDirectory(prefix="muster-test-") as temp:
        folders = [pathlib.Path(temp, name) for name in ("old", "new")]
        for folder in folders:
            folder.mkdir()
        old = args.old or build(args.tag, folders[0])
        new = args.new or (build("HEAD", folders[1], RAISED) if several else BIN)
        cluster = Cluster(None, nodes=NODES, slots=1, programs=old,
                          up=("--coordinators", args.coordinators, "--etcd", "local") if several else ())
        try:
            upgrade = Upgrade(cluster)
            for programs in (new,) if several else (new, old):
                upgrade.to(programs)
            steps = {job: max(read_metrics(cluster.output(job))) for job in upgrade.jobs}
            for job in upgrade.jobs:
                cluster.muster("cancel", job)
                cluster.wait(job)
        finally:
            cluster.close()
    print(json.dumps({"seed": 0, "violations": len(upgrade.violations), "found": upgrade.violations, "replaced": upgrade.replaced,
                      "ranks_killed": upgrade.killed, "steps": list(steps.values())}))
    return 1 if upgrade.violations else 0


if __name__ == "__main__":
    sys.exit(main())
