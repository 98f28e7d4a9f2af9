#!/usr/bin/env python3
"""What TLS adds to the way from `muster submit` to the first collective done, on two nodes.

  tls_bench.py [--runs 15]

Two clusters of the same daemons stand side by side, one with the cluster's token on loopback, one with
mutual TLS 1.3 between its three directories; jobs go to each in turn, first to the one and then to the
other, so that a machine that is busy for a while is so for both. Measured from before the CLI is started
until the coordinator's event `formed`, which is read when the job has ended: nothing of ours runs beside
it. Prints one JSON object: `difference` is what two jobs in turn have differed by, with its spread, and
`busy` what else the machine did. `within_wanted` is null as long as the interval of the median allows both.
"""

import argparse
import functools
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402
from cluster import ROOT  # noqa: E402
from launch_bench import measure_ours  # noqa: E402
from tls_cluster import TlsCluster  # noqa: E402

WANTED_S = 0.050


def within(interval, limit):
    if interval is None or interval[0] <= limit < interval[1]:
        return None
    return interval[1] <= limit


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    rounds = machine.Rounds()
    clusters = {}
    try:
        for name in ("plain", "tls"):
            clusters[name] = TlsCluster(None, tls=name == "tls")
            measure_ours(clusters[name])  # the first one reads the binaries from disk
        kinds = {name: functools.partial(measure_ours, cluster) for name, cluster in clusters.items()}
        for _ in range(options.runs):
            rounds.take(kinds)
    finally:
        for cluster in clusters.values():
            cluster.close()
    difference = machine.difference(rounds.values["plain"], rounds.values["tls"])
    print(json.dumps({
        "benchmark": "tls_submit_to_first_collective", "nodes": 2, "ranks": 2,
        "revision": machine.revision(ROOT), "machine": machine.describe(), "busy": rounds.busy(),
        **rounds.summaries(), "difference": difference, "wanted_difference_s": WANTED_S,
        "within_wanted": within(difference["median_95_s"], WANTED_S)}, indent=1))


if __name__ == "__main__":
    main()
