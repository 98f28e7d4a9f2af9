"""Daemons die: the coordinator or a worker killed with SIGKILL disturbs no rank."""

import signal
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, alive, read_metrics, wait_until  # noqa: E402


class DaemonLoss(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(self)

    def start(self):
        job = self.cluster.submit(self.cluster.train_job(steps=10**5, every=50))
        self.cluster.wait_for_step(job, 10)
        return job, self.cluster.ranks(job)

    def check_undisturbed(self, job, ranks):
        got = self.cluster.get(job)
        self.assertEqual(got["generation"], 1)
        self.assertEqual({r["rank"]: r["pid"] for r in got["ranks"]}, ranks)
        self.cluster.wait_for_step(job, max(read_metrics(self.cluster.output(job))) + 10)
        self.cluster.muster("cancel", job)
        self.assertEqual(self.cluster.wait(job), 11, self.cluster.describe(job))
        self.assertEqual(len(self.cluster.get(job)["attempts"]), 1)

    def test_the_coordinator_is_killed_and_started_again(self):
        job, ranks = self.start()
        waiting = self.cluster.submit(self.too_big())
        os.kill(self.cluster.coordinator_pid(), signal.SIGKILL)
        self.assertTrue(all(alive(pid) for pid in ranks.values()))
        self.cluster.up()
        self.assertEqual(self.cluster.get(waiting)["state"], "queued")
        self.cluster.muster("cancel", waiting)
        self.cluster.wait_for_state(job, "running")
        self.check_undisturbed(job, ranks)

    def too_big(self):
        """Needs all slots of both nodes: stays queued while another job runs."""
        spec = self.cluster.train_job(name="too-big")
        spec["resources"]["ranks_per_node"] = self.cluster.slots
        return spec

    def test_the_coordinator_is_away_while_the_job_ends(self):
        job = self.cluster.submit(self.cluster.train_job(steps=80))
        self.cluster.wait_for_step(job, 20)
        output, ranks = self.cluster.output(job), self.cluster.ranks(job)
        os.kill(self.cluster.coordinator_pid(), signal.SIGKILL)
        wait_until(lambda: not any(alive(pid) for pid in ranks.values()), "the ranks end")
        self.assertTrue((output / "model" / "config.json").exists())
        self.cluster.up()
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.assertEqual(len(self.cluster.get(job)["attempts"]), 1)

    def test_a_worker_is_killed_and_started_again(self):
        job, ranks = self.start()
        node = self.cluster.json("nodes")[1]
        os.kill(node["pid"], signal.SIGKILL)
        self.assertTrue(all(alive(pid) for pid in ranks.values()))
        self.cluster.up()
        wait_until(lambda: all(n["state"] == "ready" for n in self.cluster.json("nodes")),
                   "both nodes are ready")
        self.assertNotEqual(self.cluster.json("nodes")[1]["pid"], node["pid"])
        self.check_undisturbed(job, ranks)

    def test_taking_the_cluster_down_is_no_fault_of_the_job(self):
        spec = self.cluster.train_job(steps=40, every=100)
        spec["restart"] = {"max_without_progress": 1}
        job = self.cluster.submit(spec)
        self.cluster.ranks(job)
        for _ in range(2):
            self.cluster.muster("down")
            self.cluster.up()
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.assertIn("was taken down", self.cluster.get(job)["attempts"][0]["cause"])


if __name__ == "__main__":
    unittest.main()
