#!/usr/bin/env python3
"""How long an allocation of Slurm's pays for a start, and for a lost node: Muster beside torchrun.

In a Slurm lab of this machine (tests/slurm/lab.py), two nodes with one rank each. From the first line of the
batch script to the first collective that is done, of the same Python ranks under

  torchrun        srun torchrun, one per node, its rendezvous at the first node's address
  srun            srun alone, one task per rank, with a port that was agreed on before
  muster_command  srun muster-worker --auto, which runs them as a job's command

and to the first finished step of muster-trainer under muster-worker --auto (muster_train), which has also
loaded a model. Each once more beside a name server that never answers; the addresses are numbers in all of
them. All are taken in turn, and what one takes more than its neighbour in time is told with its spread, beside
what else the machine did (`busy`). And from the end of all processes of a node to the next finished step, with
a spare node in the allocation (node_killed). How long each lab took to stand is told too (lab_up).

  MUSTER_BIN_DIR=build/release/bin tests/bench/slurm_start.py [--runs N] [--without-peer]     JSON
"""

import argparse
import functools
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("bench", "slurm", "support")]

import cluster  # noqa: E402
import machine  # noqa: E402
import peer  # noqa: E402
from embedded import processes_on  # noqa: E402
from lab import Lab, why_not  # noqa: E402

BIN = cluster.BIN.resolve()
RANK = ROOT / "tests" / "bench" / "peers" / "first_collective.py"
HEAD = "10.77.0.1"
LIMIT_S = 60
STEP_OPTIONS = "--ntasks-per-node=1 --cpu-bind=none --no-kill"
POLL_S = 0.002


class Bench:
    def __init__(self, lab):
        self.lab = lab
        self.count = 0
        self.model = cluster.init_model(lab.shared / "model")
        self.rows = cluster.write_rows(lab.shared / "rows.jsonl")

    def path(self, name):
        return self.lab.shared / f"{name}-{self.count}"

    def batch(self, nodes, line):
        """The job, and the file to which its first line writes the time."""
        began = self.path("began")
        job = self.lab.sbatch(f"date +%s.%N > {began}\n{line}", f"-N{nodes}", "--exclusive", "--no-kill")
        return job, began

    def end(self, job):
        self.lab.run("scancel", job, check=False)
        self.lab.wait_until(lambda: self.lab.node_state("n1") == "idle", "n1 is idle again", 60)

    def wait(self, job, condition, what):
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(POLL_S)
        raise SystemExit(f"not within {LIMIT_S} s: {what}\n{self.lab.output(job)}"
                         f"{self.lab.logs('slurmctld.log')}")

    # From the start to the first collective.

    def peer_start(self, launcher):
        self.count += 1
        done = self.path("done")
        job, began = self.batch(2, launcher(self, done))
        self.wait(job, done.exists, "the first collective")
        seconds = float(done.read_text()) - float(began.read_text())
        self.end(job)
        return seconds

    def torchrun(self, done):
        # Without --local-addr it gives the others its host name, which they may not know.
        return (f"srun {STEP_OPTIONS} sh -c 'exec {peer.TORCHRUN} --nnodes=2 --nproc-per-node=1 "
                f"--local-addr=10.77.0.$((SLURM_NODEID + 1)) --rdzv-backend=c10d "
                f"--rdzv-id=$SLURM_JOB_ID --rdzv-endpoint={HEAD}:29500 {RANK} {done}'")

    def srun(self, done):
        variables = (f"MASTER_ADDR={HEAD} MASTER_PORT=29500 WORLD_SIZE=2 RANK=$SLURM_PROCID "
                     "LOCAL_RANK=0")
        return f"srun {STEP_OPTIONS} sh -c '{variables} exec {peer.PYTHON} {RANK} {done}'"

    def muster_command(self, done):
        job = {"name": f"command-{self.count}", "workdir": str(self.lab.shared),
               "resources": {"nodes": 2, "ranks_per_node": 1, "device": "cpu"},
               "command": [str(peer.PYTHON), str(RANK), str(done)]}
        return self.auto(job)

    def auto(self, job):
        file = self.path("job")
        file.write_text(json.dumps(job), encoding="utf-8")
        return (f"srun {STEP_OPTIONS} --kill-on-bad-exit=0 --wait=0 {BIN}/muster-worker --auto "
                f"--job {file} --slots 1 --term-grace 2")

    def train(self, nodes, steps):
        self.count += 1
        output = self.path("out")
        spec = cluster.train_job(self.model, self.rows, output, nodes=2, steps=steps, every=50,
                                 name=f"train-{self.count}", fsdp={})
        job, began = self.batch(nodes, self.auto(spec))
        return job, began, lambda: max(cluster.read_metrics(output), default=0)

    def train_start(self):
        job, began, last_step = self.train(2, 5)
        self.wait(job, lambda: last_step() >= 1, "the first step")
        seconds = time.time() - float(began.read_text())
        self.end(job)
        return seconds

    # A lost node.

    def node_killed(self, lose):
        job, _, last_step = self.train(3, 100000)
        self.wait(job, lambda: last_step() >= 60, "step 60")
        node = next(name for name in ("n2", "n3") if "muster-trainer" in processes_on(self.lab, name))
        lose(node)
        lost = time.monotonic()
        before = last_step()
        self.wait(job, lambda: last_step() > before + 1, "a step after the loss")
        seconds = time.monotonic() - lost
        self.end(job)
        self.lab.revive_node(node)
        self.lab.wait_for_node(node, "idle")
        return seconds


def show(name, seconds):
    print(name, round(seconds, 3), file=sys.stderr, flush=True)


def starts(runs, with_peer):
    """In turn, labs with and without a name server that answers as well: a lab stands in less than a second."""
    servers = {"name_server_refuses": False, "name_server_never_answers": True}
    rounds = {server: machine.Rounds(show) for server in servers}
    up = {server: [] for server in servers}
    for number in range(runs):
        for server in list(servers)[::-1 if number % 2 else 1]:
            print(server, file=sys.stderr, flush=True)
            with Lab(2, dead_name_server=servers[server], own_name=True, visible=[BIN]) as lab:
                up[server].append(lab.seconds_up)
                bench = Bench(lab)
                kinds = {"muster_train": bench.train_start}
                if with_peer:
                    for launcher in (Bench.muster_command, Bench.srun, Bench.torchrun):
                        kinds[launcher.__name__] = functools.partial(bench.peer_start, launcher)
                rounds[server].take(kinds)
    result = {}
    for server, taken in rounds.items():
        result[server] = {"lab_up": machine.summary(up[server]), **taken.summaries(), "busy": taken.busy()}
        if with_peer:
            result[server]["more_than_muster_command"] = {
                name: machine.difference(taken.values["muster_command"], taken.values[name])
                for name in ("srun", "torchrun")}
    refused, unanswered = (rounds[server].values for server in servers)
    result["more_where_no_name_server_answers"] = {
        name: machine.difference(values, unanswered[name]) for name, values in refused.items()}
    return result


def losses(runs):
    with Lab(3, visible=[BIN]) as lab:
        bench = Bench(lab)
        return {"told_its_peers": machine.summary([bench.node_killed(lab.kill_node)
                                                   for _ in range(runs)]),
                "power_lost": machine.summary([bench.node_killed(lab.power_loss)
                                               for _ in range(runs)])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=5, help="of each kind, in turn [5]")
    parser.add_argument("--losses", type=int, default=3, help="of each kind of loss [3]")
    parser.add_argument("--without-peer", action="store_true")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"error: no Slurm lab: {reason}", file=sys.stderr)
        return 1
    if not given.without_peer:
        peer.require()
    result = {"machine": machine.describe(), "revision": machine.revision(ROOT),
              **starts(given.runs, not given.without_peer)}
    if given.losses:
        result["node_killed_to_next_step"] = losses(given.losses)
    result["load_1min_after"] = round(os.getloadavg()[0], 2)
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
