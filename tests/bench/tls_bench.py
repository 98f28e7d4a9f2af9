#!/usr/bin/env python3
"""What TLS adds to the way from `muster submit` to the first collective done, on two nodes.

  tls_bench.py [--runs 15]

Two clusters of the same daemons stand side by side, one with the cluster's token on loopback, one with
mutual TLS 1.3 between its three directories; jobs go to each in turn, so that a machine that
is busy for a while is so for both. Measured from before the CLI is started until the coordinator's event
`formed`, which is read when the job has ended: nothing of ours runs beside it. Prints one JSON object;
`difference_s` and `ratio` are the medians of what two jobs in turn have differed by.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402
from cluster import ROOT  # noqa: E402
from tls_cluster import TlsCluster  # noqa: E402

WANTED_S = 0.050


def measure(cluster):
    spec = cluster.train_job(steps=1, every=1000)
    file = cluster.write_job(spec)
    started = time.time()
    cluster.muster("submit", file, "--wait")
    formed = next(event["time"] for event in cluster.json("events", spec["name"])
                  if event["kind"] == "formed")
    return datetime.datetime.fromisoformat(formed.replace("Z", "+00:00")).timestamp() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    seconds = {"plain": [], "tls": []}
    clusters = {}
    try:
        for name in seconds:
            clusters[name] = TlsCluster(None, tls=name == "tls")
            measure(clusters[name])  # the first one reads the binaries from disk
        for _ in range(options.runs):
            for name, cluster in clusters.items():
                seconds[name].append(measure(cluster))
    finally:
        for cluster in clusters.values():
            cluster.close()
    pairs = list(zip(seconds["plain"], seconds["tls"]))
    print(json.dumps({
        "benchmark": "tls_submit_to_first_collective", "nodes": 2, "ranks": 2,
        "revision": machine.revision(ROOT), "machine": machine.describe(),
        **{name: machine.summary(values) for name, values in seconds.items()},
        "difference_s": round(statistics.median(tls - plain for plain, tls in pairs), 4),
        "ratio": round(statistics.median(tls / plain for plain, tls in pairs), 3),
        "wanted_difference_s": WANTED_S}, indent=1))


if __name__ == "__main__":
    main()
