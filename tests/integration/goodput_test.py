"""Every second of a job's ranks is accounted for, whatever happens to ranks and coordinator."""

import datetime
import pathlib
import re
import signal
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, kill, wait_until  # noqa: E402

RANKS = 2
STATES = ("step", "recompute", "checkpoint", "recovery", "hang", "queue", "idle")
SERIES = re.compile(r'muster_job_goodput_seconds_total\{job_id="(\w+)",state="(\w+)"\} (\S+)')


class Goodput(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(self)
        self.http = self.cluster.up()["http"]

    def booked(self, job):
        """What the command says, and between which moments of our own clock it was true."""
        before = time.monotonic()
        [entry] = self.cluster.json("goodput", job)
        after = time.monotonic()
        goodput = entry["goodput"]
        self.assertEqual(tuple(goodput["states"]), STATES)
        self.assertAlmostEqual(sum(goodput["states"].values()), goodput["total_seconds"], places=6)
        return goodput, before, after

    def exported(self, job):
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return {state: float(value) for run, state, value in SERIES.findall(text) if run == job}

    def restart_coordinator(self):
        """Killed and started again; no figure on /metrics falls."""
        before = self.exported(self.job)
        kill(self.cluster.coordinator_pid())
        self.http = self.cluster.up()["http"]
        after = self.exported(self.job)
        for state in STATES:
            # Its wall clock has milliseconds.
            self.assertGreaterEqual(after[state], before[state] - 0.001 * RANKS, state)

    def train_on(self, steps):
        """Until there are new steps beyond all that were done before."""
        furthest = max(a["last_step"] for a in self.cluster.get(self.job)["attempts"])
        wait_until(lambda: self.cluster.get(self.job)["step"] >= furthest + steps, "it trains on")

    def next_attempt(self, generation):
        wait_until(lambda: self.cluster.get(self.job)["generation"] == generation,
                   f"attempt {generation} begins", timeout=60)
        self.cluster.wait_for_state(self.job, "running")

    def run_through_faults(self):
        # Without snapshots, so that a fault costs the steps since the last checkpoint.
        spec = self.cluster.train_job(steps=1000000, every=25, snapshot={"every": 0})
        self.before = time.monotonic()
        self.job = self.cluster.submit(spec)
        self.submitted = time.monotonic()
        self.cluster.wait_for_step(self.job, 60)
        self.cluster.kill_rank(self.job, 1)
        self.next_attempt(2)
        self.train_on(10)
        kill(self.cluster.ranks(self.job)[0], signal.SIGSTOP)
        self.next_attempt(3)
        self.train_on(10)
        self.restart_coordinator()
        self.cluster.wait_until_ready()
        self.train_on(10)

    def end(self):
        self.last_seen = time.monotonic()
        self.cluster.muster("cancel", self.job)
        self.cluster.wait(self.job)
        self.ended = time.monotonic()

    def test_every_rank_second_is_booked_once(self):
        self.run_through_faults()
        goodput, before, after = self.booked(self.job)
        # No closer than the calls took: only the coordinator knows when within them it handled the request.
        known = goodput["total_seconds"] + goodput["under_way_seconds"]
        self.assertGreaterEqual(known, RANKS * (before - self.submitted) * 0.999)
        self.assertLessEqual(known, RANKS * (after - self.before) * 1.001)

        self.end()
        goodput, _, _ = self.booked(self.job)
        timeline = f"{goodput}\n{self.cluster.describe(self.job)}"
        for state in ("step", "recompute", "checkpoint", "recovery", "hang", "idle"):
            self.assertGreater(goodput["states"][state], 0, timeline)
        # A gang that stood for 2.8 s; the report of its last step may have come 1 s late.
        self.assertGreater(goodput["states"]["hang"], RANKS * 2.7, timeline)
        self.assertEqual(goodput["under_way_seconds"], 0)
        total = goodput["total_seconds"]
        self.assertGreaterEqual(total, RANKS * (self.last_seen - self.submitted) * 0.999, timeline)
        self.assertLessEqual(total, RANKS * (self.ended - self.before) * 1.001, timeline)
        # The two moments as the coordinator recorded them, to the millisecond.
        got = self.cluster.get(self.job)
        ended, submitted = (datetime.datetime.fromisoformat(got[key]) for key in ("ended", "submitted"))
        life = RANKS * (ended - submitted).total_seconds()
        self.assertAlmostEqual(total, life, delta=0.001 * life, msg=timeline)
        print(f"booked {total:.3f} s of ranks; by both moments {life:.3f} s, by the test's clock "
              f"{RANKS * (self.last_seen - self.submitted):.3f} to {RANKS * (self.ended - self.before):.3f} s",
              {state: round(seconds, 3) for state, seconds in goodput["states"].items()}, file=sys.stderr)

        self.assertEqual(self.exported(self.job).keys(), set(STATES))
        for state, seconds in self.exported(self.job).items():
            self.assertAlmostEqual(seconds, goodput["states"][state], delta=1e-3)
        self.restart_coordinator()
        self.assertEqual(self.booked(self.job)[0], goodput)
        self.assertIn("goodput", self.cluster.describe(self.job))
        cluster = self.cluster.json("goodput")[-1]
        self.assertEqual(cluster["id"], "cluster")
        # Two nodes of four slots, of which the job had one each.
        self.assertGreater(cluster["goodput"]["states"]["idle"], 3 * total)
        self.assertAlmostEqual(cluster["goodput"]["states"]["hang"], goodput["states"]["hang"], places=6)


if __name__ == "__main__":
    unittest.main()
