#!/usr/bin/env python3
"""From `muster submit` to the first collective done on two local nodes, median of many.

  launch_bench.py [--runs 15] [--peer] [--beside BIN_DIR]

Ours: from before the CLI is started until the coordinator's event `formed`, which it writes when
every rank has reported the end of its first collective. The event is read when the job has ended:
nothing of ours runs beside it. --peer runs torchrun beside it with two agents (c10d rendezvous), from
before its start until the last rank's first all_reduce is done. --beside takes turns with another
build of Muster; `difference` is what ours took more. Prints one JSON object.
"""

import argparse
import datetime
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import builds  # noqa: E402
import machine  # noqa: E402
import peer  # noqa: E402
from cluster import ROOT  # noqa: E402
from gang import free_port  # noqa: E402

PEER_PROGRAM = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
open(f"{sys.argv[1]}/{dist.get_rank()}", "w").write(repr(time.time()))
dist.destroy_process_group()
"""


def measure_ours(cluster):
    spec = cluster.train_job(steps=1, every=1000, fsdp={})
    file = cluster.write_job(spec)
    started = time.time()
    cluster.muster("submit", file, "--wait")
    formed = next(event["time"] for event in cluster.json("events", spec["name"])
                  if event["kind"] == "formed")
    return datetime.datetime.fromisoformat(formed.replace("Z", "+00:00")).timestamp() - started


def measure_peer(folder):
    program = folder / "program.py"
    program.write_text(PEER_PROGRAM)
    port = free_port()
    for rank in (0, 1):
        (folder / str(rank)).unlink(missing_ok=True)
    started = time.time()
    agents = [subprocess.Popen(
        [peer.TORCHRUN, "--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d",
         f"--rdzv_endpoint=127.0.0.1:{port}", "--rdzv_id=bench", program, folder],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL) for _ in range(2)]
    for agent in agents:
        if agent.wait(timeout=60) != 0:
            raise SystemExit("torchrun failed")
    return max(float((folder / str(rank)).read_text()) for rank in (0, 1)) - started


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--peer", action="store_true", help="run torchrun beside it")
    builds.add_option(parser)
    options = parser.parse_args()
    programs = builds.programs(options.beside)
    result = {"benchmark": "submit_to_first_collective", "nodes": 2, "ranks": 2, "revision": machine.revision(ROOT),
              "programs": builds.versions(programs), "machine": machine.describe()}
    rounds = machine.Rounds()
    with builds.clusters(programs) as clusters:
        for cluster in clusters.values():
            measure_ours(cluster)  # the first one reads the binaries from disk
        for _ in range(options.runs):
            rounds.take({name: functools.partial(measure_ours, cluster) for name, cluster in clusters.items()})
    result.update(rounds.summaries(), **builds.difference(rounds.values), busy=rounds.busy())
    if options.peer:
        with tempfile.TemporaryDirectory() as temp:
            measure_peer(pathlib.Path(temp))
            result["torchrun"] = machine.summary(
                [measure_peer(pathlib.Path(temp)) for _ in range(options.runs)])
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
