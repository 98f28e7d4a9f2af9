#!/usr/bin/env python3
"""From the SIGKILL of a rank to the next finished step, on quickstart's model; median of many.

  recovery_bench.py [--runs 15] [--rank 1] [--peer]

Each run is a kill in a training job of its own. The end is the moment at which the first line of
the next generation appears in metrics.jsonl. --peer kills a worker of a
torchrun job of the same shape (two agents, c10d rendezvous, default settings and with
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1) and waits for its next step, 60 s at most.
Prints one JSON object.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402
import peer  # noqa: E402
from cluster import ROOT, Cluster, read_metrics, wait_until  # noqa: E402
from gang import free_port  # noqa: E402

PEER_LIMIT_S = 60

# Steps of about 50 ms, and a line per finished step, as a training script would write it.
PEER_PROGRAM = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, restart = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
open(f"{sys.argv[1]}/pid-{rank}-{restart}", "w").write(str(os.getpid()))
for step in range(100000):
    time.sleep(0.05)
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        print(restart, step, flush=True, file=open(f"{sys.argv[1]}/steps", "a"))
"""


def newest_generation(output):
    return max((entry["generation"] for entry in read_metrics(output).values()), default=0)


def measure_ours(cluster, rank):
    job = cluster.submit(cluster.train_job(
        steps=100000, every=20, data={"train": str(ROOT / "configs/data/self_instruct_user_oriented.jsonl"),
                                      "max_seq_len": 256}, batch={"per_rank": 4, "accumulation": 1}))
    cluster.wait_for_step(job, 25)
    output, ranks = cluster.output(job), cluster.ranks(job)
    metrics = output / "metrics.jsonl"
    os.kill(ranks[rank], signal.SIGKILL)
    killed = time.monotonic()
    needle = '"generation":2'

    def next_step():
        with open(metrics, encoding="utf-8") as file:
            file.seek(max(0, os.path.getsize(metrics) - 2000))
            return needle in file.read().replace(" ", "")
    wait_until(next_step, "a step of the next generation", timeout=60)
    seconds = time.monotonic() - killed
    stages = cluster.get(job)["attempts"][1]["seconds"]
    cluster.muster("cancel", job)
    cluster.wait(job)
    return seconds, stages


def measure_peer(folder, rank, variables):
    program = folder / "program.py"
    program.write_text(PEER_PROGRAM)
    port = free_port()
    agents = [subprocess.Popen(
        [peer.TORCHRUN, "--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d",
         "--max_restarts=3", f"--rdzv_endpoint=127.0.0.1:{port}", "--rdzv_id=bench", program, folder],
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
    steps = folder / "steps"

    def seen(restart, at_least):
        lines = steps.read_text(encoding="utf-8").splitlines() if steps.exists() else []
        return sum(line.startswith(f"{restart} ") for line in lines) >= at_least
    try:
        wait_until(lambda: seen(0, 10), "the peer trains")
        os.kill(int((folder / f"pid-{rank}-0").read_text()), signal.SIGKILL)
        killed = time.monotonic()
        try:
            wait_until(lambda: any(seen(restart, 1) for restart in (1, 2, 3)), "the peer's next step",
                       timeout=PEER_LIMIT_S)
        except AssertionError:
            return None
        return time.monotonic() - killed
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait(timeout=60)


def summarise_peer(runs):
    recovered = [seconds for seconds in runs if seconds is not None]
    return {"recovered": f"{len(recovered)} of {len(runs)} within {PEER_LIMIT_S} s",
            **(machine.summary(recovered) if recovered else {})}


def peers(rank, runs):
    results = {}
    for name, variables in (("torchrun", {}),
                            ("torchrun_unshared_store", {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})):
        seconds = []
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as temp:
                seconds.append(measure_peer(pathlib.Path(temp), rank, variables))
        results[name] = summarise_peer(seconds)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--peer", action="store_true", help="run torchrun beside it")
    options = parser.parse_args()
    result = {"benchmark": "rank_killed_to_next_step", "nodes": 2, "ranks": 2,
              "killed_rank": options.rank, "model": "tiny", "revision": machine.revision(ROOT),
              "machine": machine.describe()}
    cluster = Cluster(None)
    try:
        measured = [measure_ours(cluster, options.rank) for _ in range(options.runs)]
    finally:
        cluster.close()
    result["muster"] = machine.summary([seconds for seconds, _ in measured])
    result["stages_median_s"] = {
        stage: machine.summary([stages[stage] for _, stages in measured])["median_s"]
        for stage in ("detect", "abort", "reform", "load", "first_step")}
    if options.peer:
        result.update(peers(options.rank, options.runs))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
