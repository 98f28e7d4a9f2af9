"""Rings over TCP on networks that lose packets, in network namespaces of their own.

  lossy_network_test.py [UNITTEST OPTIONS]                half a minute of each
  lossy_network_test.py --loss PERCENT --minutes N        one, and its result as JSON (docs/measurements)

Each rank has a namespace, a hub connects them, and nftables drops packets where they come in, so that a segment and
its acknowledgement are each lost by the given chance.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, can_have_namespaces, ip, kill  # noqa: E402

PROBE = BIN.parent / "tests" / "ring_probe"
RANKS = 3
PORT = 29501
FOUND_S = 45  # within which a cut link is found on a busy machine: 15 s, and the news
STOPPED_S = 17  # longer than a silent connection is kept
LATE_S = 240  # for stalls: the operation that is under way when the time is over


def nft():
    return shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin")


def why_not():
    if not can_have_namespaces():
        return "network namespaces need root and the program ip"
    return None if nft() else "the program nft is missing (Debian: nftables)"


def largest_at(percent):
    """Log2 of a collective's elements at most: with twenty percent TCP does some KB/s, between stalls of seconds."""
    return 17 if percent < 10 else 11


class Network:
    """A namespace for each rank, at 10.78.0.RANK+1, and one for the hub."""

    def __init__(self):
        self.stem = f"muster-lossy-{os.getpid()}-"
        self.hub = self.stem + "hub"
        self.made = []
        self.probes = []
        try:
            self.make(self.hub)
            ip("-n", self.hub, "link", "add", "br0", "type", "bridge")
            ip("-n", self.hub, "link", "set", "br0", "up")
            for rank in range(RANKS):
                self.add_rank(rank)
        except BaseException:
            self.close()
            raise

    def make(self, name):
        ip("netns", "add", name)
        self.made.append(name)

    def add_rank(self, rank):
        name, port = self.name(rank), f"port{rank}"
        self.make(name)
        ip("-n", self.hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("-n", self.hub, "link", "set", port, "master", "br0", "up")
        ip("-n", name, "addr", "add", f"10.78.0.{rank + 1}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "set", "eth0", "up")

    def name(self, rank):
        return f"{self.stem}{rank}"

    def lose(self, percent):
        rules = ("table inet lossy { chain incoming { type filter hook input priority 0; "
                 f"iifname eth0 numgen random mod 100 < {percent} drop; }}; }}")
        for rank in range(RANKS):
            subprocess.run([*self.inside(rank), nft(), rules], check=True, timeout=60)

    def cut(self, rank):
        ip("-n", self.hub, "link", "set", f"port{rank}", "down")

    def inside(self, rank):
        return ["nsenter", f"--net=/run/netns/{self.name(rank)}"]

    def start(self, seconds, seed, largest=17):
        for rank in range(RANKS):
            self.probes.append(subprocess.Popen(
                [*self.inside(rank), PROBE, str(rank), str(RANKS), "10.78.0.1", str(PORT), str(seconds), str(seed),
                 str(largest)],
                stdout=subprocess.PIPE, text=True))
        for probe in self.probes:
            assert probe.stdout.readline() == "formed\n"

    def reports(self, timeout):
        return [json.loads(probe.communicate(timeout=timeout)[0]) for probe in self.probes]

    def close(self):
        for probe in self.probes:
            kill(probe.pid)
            probe.wait()
            probe.stdout.close()
        for name in self.made:
            ip("netns", "delete", name)


@unittest.skipIf(why_not(), why_not())
class LossyNetwork(unittest.TestCase):
    def setUp(self):
        self.network = Network()
        self.addCleanup(self.network.close)

    def check_with_loss(self, percent):
        self.network.lose(percent)
        self.network.start(30, percent, largest_at(percent))
        for report in self.network.reports(LATE_S):
            self.assertEqual(report["wrong"], "", report)
            self.assertTrue(report["transport"].startswith("TCP from 10.78.0."), report)
            self.assertGreater(report["checked"], 0, report)

    def test_of_100_packets_one_is_lost(self):
        self.check_with_loss(1)

    def test_of_100_packets_twenty_are_lost(self):
        self.check_with_loss(20)

    def test_a_rank_that_is_stopped_is_waited_for(self):
        self.network.start(seconds=STOPPED_S + 2, seed=3)
        stopped = self.network.probes[1]
        kill(stopped.pid, signal.SIGSTOP)
        with self.assertRaises(subprocess.TimeoutExpired):
            self.network.probes[0].wait(timeout=STOPPED_S)
        kill(stopped.pid, signal.SIGCONT)
        for report in self.network.reports(LATE_S):
            self.assertEqual(report["wrong"], "", report)

    def test_a_cut_link_is_found_on_both_sides_of_it(self):
        self.network.start(seconds=600, seed=4)
        self.network.cut(2)
        cut = time.monotonic()
        for report in self.network.reports(FOUND_S):
            self.assertIn("UNAVAILABLE: lost rank ", report["wrong"])
        print(f"found after {time.monotonic() - cut:.1f} s", file=sys.stderr)


def measure(percent, minutes):
    """One run; its result as JSON."""
    if why_not():
        print(why_not(), file=sys.stderr)
        return 1
    seed = int(time.time())
    network = Network()
    try:
        network.lose(percent)
        network.start(minutes * 60, seed, largest_at(percent))
        reports = network.reports(minutes * 60 + LATE_S)
    finally:
        network.close()
    wrong = [report for report in reports if report["wrong"]]
    print(json.dumps({"seed": seed, "events": reports[0]["checked"], "violations": len(wrong), "wrong": wrong}))
    return 1 if wrong else 0


def main():
    if "--loss" not in sys.argv:
        return unittest.main()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loss", type=int, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    options = parser.parse_args()
    return measure(options.loss, options.minutes)


if __name__ == "__main__":
    sys.exit(main())
