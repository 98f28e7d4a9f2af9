"""Jobs side by side: they never collide, repeat nothing, wait their turn and can be cancelled."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, alive, run, trajectory, wait_until  # noqa: E402


class Queue(unittest.TestCase):
    def test_two_jobs_at_once_on_the_same_nodes(self):
        cluster = Cluster(self)
        jobs = [cluster.submit(cluster.train_job(steps=60)) for _ in range(2)]
        placed = [cluster.ranks(job) for job in jobs]
        self.assertEqual(len({pid for ranks in placed for pid in ranks.values()}), 4)
        for job in jobs:
            self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
            self.assertEqual(len(cluster.get(job)["attempts"]), 1)
        self.assertEqual(*(trajectory(cluster.output(job)) for job in jobs))

    def test_a_gang_waits_until_all_of_it_fits(self):
        cluster = Cluster(self, slots=1)
        first = cluster.submit(cluster.train_job(steps=400, every=200))
        cluster.ranks(first)
        second = cluster.submit(cluster.train_job(steps=10))
        self.assertEqual(cluster.get(second)["state"], "queued")
        self.assertFalse(cluster.get(second)["ranks"])
        cluster.muster("cancel", first)
        self.assertEqual(cluster.wait(first), 11)
        self.assertEqual(cluster.wait(second), 0, cluster.describe(second))

    def test_submit_is_idempotent_by_key(self):
        cluster = Cluster(self)
        spec = cluster.train_job(steps=10)
        first = cluster.submit(spec, "--key", "nightly-7")
        self.assertEqual(cluster.submit(spec, "--key", "nightly-7"), first)
        spec["train"]["optimizer"]["lr"] = 5.0e-4
        other = cluster.muster("submit", cluster.write_job(spec), "--key", "nightly-7", check=False)
        self.assertEqual(other.returncode, 6, other.stderr)
        self.assertIn("nightly-7", other.stderr)
        self.assertEqual(cluster.wait(first), 0)
        self.assertEqual(len(cluster.json("get")), 1)

    def test_cancel_ends_every_process(self):
        cluster = Cluster(self)
        job = cluster.submit(cluster.train_job(steps=100000, every=1000))
        cluster.wait_for_step(job, 5)
        ranks = cluster.ranks(job)
        cluster.muster("cancel", job)
        self.assertEqual(cluster.wait(job), 11)
        self.assertFalse([pid for pid in ranks.values() if alive(pid)])
        self.assertEqual(cluster.get(job)["state"], "cancelled")
        wait_until(lambda: not list((cluster.dir / "nodes").glob("*/jobs/*/guardian.json")),
                   "the guardians are gone")

    def test_down_in_the_middle_and_up_again_goes_on_from_the_checkpoint(self):
        cluster = Cluster(self)
        job = cluster.submit(cluster.train_job(steps=200, every=20))
        wait_until(lambda: cluster.checkpoints(job), "a checkpoint is committed")
        cluster.muster("down")
        cluster.up()
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
        self.assertGreaterEqual(cluster.get(job)["attempts"][-1]["resumed_step"], 20)


class LocalCluster(unittest.TestCase):
    def test_up_twice_is_one_cluster(self):
        cluster = Cluster(self)
        before = cluster.json("nodes")
        self.assertEqual(cluster.up()["started"], [])
        self.assertEqual([n["pid"] for n in cluster.json("nodes")], [n["pid"] for n in before])

    def test_down_twice_and_commands_after_it(self):
        cluster = Cluster(self)
        cluster.muster("down")
        self.assertEqual(cluster.muster("down", check=False).returncode, 0)
        gone = cluster.muster("nodes", check=False)
        self.assertEqual(gone.returncode, 5, gone.stderr)
        self.assertIn("muster up", gone.stderr)

    def test_version_needs_no_cluster(self):
        self.assertRegex(run("muster", "version").stdout, r"\d+\.\d+\.\d+")
        self.assertRegex(run("muster-trainer", "version").stdout, r"\d+\.\d+\.\d+")


if __name__ == "__main__":
    unittest.main()
