#!/usr/bin/env python3
"""What a checkpoint stops training for in a supervised job, with a sealed snapshot and without.

  checkpoint_bench.py [--pairs N] [--preset small]

Jobs with `train.snapshot.every` 1 and 0 take turns on two local nodes with a rank each. A stall is what a rank
itself counts as the stage of a checkpoint (muster_checkpoint_duration_seconds{phase="stage"}), read from
its worker's /metrics after each one. Prints one JSON object.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402
from cluster import ROOT, TERMINAL, Cluster, init_model, read_metrics  # noqa: E402

CHECKPOINT_EVERY = 8
STEPS = 44
STAGE = re.compile(r'muster_checkpoint_duration_seconds_(sum|count)\{[^}]*phase="stage"[^}]*\} (\S+)')


class Stages:
    """The stages of a worker's ranks since it was made, one by one if it is updated often enough."""

    def __init__(self, endpoint):
        self.url = f"http://{json.loads(endpoint.read_text(encoding='utf-8'))['http']}/metrics"
        self.count, self.sum = self._read()
        self.seconds = []

    def _read(self):
        with urllib.request.urlopen(self.url, timeout=10) as page:
            values = {"count": 0.0, "sum": 0.0}
            for name, value in STAGE.findall(page.read().decode()):
                values[name] += float(value)
        return values["count"], values["sum"]

    def update(self):
        count, total = self._read()
        if count == self.count + 1:
            self.seconds.append(total - self.sum)
        self.count, self.sum = count, total


def stalls(cluster, model, every):
    """Seconds of each checkpoint of a job but the last, which is waited for, and its median step."""
    workers = [Stages(path) for path in sorted(cluster.dir.glob("nodes/*/worker.json"))]
    job = cluster.submit(cluster.train_job(
        model=model, steps=STEPS, every=CHECKPOINT_EVERY, snapshot={"every": every}))
    while cluster.get(job)["state"] not in TERMINAL:
        for worker in workers:
            worker.update()
        time.sleep(0.1)
    if cluster.wait(job) != 0:
        raise AssertionError(cluster.describe(job))
    steps = read_metrics(cluster.output(job))
    due = STEPS // CHECKPOINT_EVERY
    return ([second for worker in workers for second in worker.seconds[:due]],
            statistics.median(entry["step_seconds"] for entry in steps.values()))


def summary(runs):
    seconds = sorted(second for stages, _ in runs for second in stages)
    return {"stalls": len(seconds), "median_ms": round(1e3 * statistics.median(seconds), 3),
            "min_ms": round(1e3 * seconds[0], 3), "max_ms": round(1e3 * seconds[-1], 3),
            "step_ms": round(1e3 * statistics.median(step for _, step in runs), 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--preset", default="small")
    options = parser.parse_args()
    result = {"benchmark": "checkpoint_stall", "preset": options.preset,
              "revision": machine.revision(ROOT), "machine": machine.describe()}
    cluster = Cluster(None, nodes=2)
    try:
        model = init_model(cluster.path("model-of-bench"), options.preset)
        pairs = [(stalls(cluster, model, 1), stalls(cluster, model, 0)) for _ in range(options.pairs)]
    finally:
        cluster.close()
    result["with_snapshot"] = summary([run for run, _ in pairs])
    result["without"] = summary([run for _, run in pairs])
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
