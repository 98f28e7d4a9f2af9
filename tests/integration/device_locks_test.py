"""A GPU has processes of one job at a time, whatever is killed: watched from outside by the locks that they hold."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, fake_gpus, kill, processes_of_job, read_metrics, wait_until  # noqa: E402
from device_watch import DeviceWatch, locks_of  # noqa: E402

FOREVER = 10**6
GPUS = [{"count": 4, "kind": "NVIDIA H100 80GB HBM3", "memory": "80GB"}]


class DeviceLocks(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(self, nodes=2, up=("--fake-gpus", fake_gpus(self, GPUS)))
        self.watch = DeviceWatch(self.cluster.dir)
        self.watch.start()
        self.addCleanup(self.watch.stop)

    def train(self, name, steps, **resources):
        spec = self.cluster.train_job(steps=steps, every=200, name=name)
        spec["resources"] |= {"device": "cuda", **resources}
        return self.cluster.submit(spec)

    def wait_for_generation(self, job, generation):
        wait_until(lambda: self.cluster.get(job)["generation"] >= generation
                   and self.cluster.get(job)["state"] == "running",
                   f"generation {generation} of {job} runs")
        self.cluster.ranks(job)

    def locks_of(self, pid):
        return locks_of(pid, self.cluster.dir)

    def devices(self):
        """Which job has a device, as the coordinator sees it."""
        return {device["id"]: device["job"] for node in self.cluster.json("nodes")
                for device in node["devices"] if device["job"]}

    def expect_locked_by_its_rank_alone(self, job):
        for rank in self.cluster.get(job)["ranks"]:
            held = self.locks_of(rank["pid"])
            self.assertEqual(len(held), 1, rank)
            self.assertEqual(self.devices()[held.pop()], job)

    def expect_no_second_holder(self, *jobs):
        self.watch.stop()
        self.assertGreater(self.watch.looks, 5)
        self.assertTrue(self.watch.held)
        self.assertEqual(self.watch.shared, [])
        for job in jobs:
            self.assertNotIn("still held", self.cluster.muster("events", job).stdout)

    def test_a_job_that_waits_gets_a_gpu_only_when_the_one_before_is_gone(self):
        first = self.train("first", FOREVER, ranks_per_node=3)
        self.cluster.wait_for_step(first, 5)
        second = self.train("second", 20, ranks_per_node=3)
        self.assertEqual(self.cluster.get(second)["state"], "queued")
        self.assertIn("too few free GPUs", self.cluster.get(second)["reason"])
        self.expect_locked_by_its_rank_alone(first)
        self.cluster.muster("cancel", first)
        self.assertEqual(self.cluster.wait(second), 0, self.cluster.describe(second))
        self.assertEqual(self.cluster.wait(first), 11)
        wait_until(lambda: not self.devices(), "all devices are free")
        self.expect_no_second_holder(first, second)

    def test_kills_and_recoveries_let_no_job_near_anothers_gpus(self):
        one = self.train("one", FOREVER, ranks_per_node=2)
        two = self.train("two", FOREVER, ranks_per_node=1)
        for job in (one, two):
            self.cluster.wait_for_step(job, 5)
        before = {rank["rank"]: self.locks_of(rank["pid"]) for rank in self.cluster.get(one)["ranks"]}
        self.cluster.kill_rank(one, 1)
        self.wait_for_generation(one, 2)
        after = {rank["rank"]: self.locks_of(rank["pid"]) for rank in self.cluster.get(one)["ranks"]}
        self.assertEqual(before, after, "a recovery in place keeps the devices")
        kill(next(pid for pid, program in processes_of_job(two) if "guardian" in program))
        self.wait_for_generation(two, 2)
        kill(self.cluster.worker_pid("node-1"))
        self.cluster.kill_rank(one, 0)
        self.cluster.up()
        self.wait_for_generation(one, 3)
        self.expect_locked_by_its_rank_alone(two)
        for job in (one, two):
            self.cluster.wait_for_step(job, max(read_metrics(self.cluster.output(job))) + 5)
            self.cluster.muster("cancel", job)
            self.assertEqual(self.cluster.wait(job), 11)
        wait_until(lambda: not self.devices(), "all devices are free")
        self.expect_no_second_holder(one, two)

    def test_a_coordinator_that_starts_again_knows_whose_the_gpus_are(self):
        job = self.train("job", FOREVER, ranks_per_node=2)
        self.cluster.wait_for_step(job, 5)
        before = self.devices()
        kill(self.cluster.coordinator_pid())
        self.cluster.up()
        wait_until(lambda: all(node["state"] == "ready" for node in self.cluster.json("nodes")),
                   "the nodes are back")
        self.assertEqual(self.devices(), before)
        other = self.train("other", 20, ranks_per_node=2)
        self.assertEqual(self.cluster.wait(other), 0, self.cluster.describe(other))
        self.assertEqual(self.cluster.get(job)["generation"], 1)
        self.expect_no_second_holder(job, other)


class TwoClusters(unittest.TestCase):
    """Two clusters of one machine whose workers report the same GPU and lock it in the same directory."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-locks-")
        self.addCleanup(folder.cleanup)
        self.locks = pathlib.Path(folder.name)
        variables = mock.patch.dict(os.environ, {"MUSTER_DEVICE_LOCKS": folder.name})
        variables.start()
        self.addCleanup(variables.stop)
        gpus = fake_gpus(self, [{"uuid": "GPU-of-both"}])
        self.one, self.two = (Cluster(self, nodes=1, up=("--fake-gpus", gpus)) for _ in range(2))

    def submit(self, cluster, name, *command):
        return cluster.submit({"name": name, "workdir": str(cluster.root), "command": command,
                               "resources": {"nodes": 1, "ranks_per_node": 1, "device": "cuda"}})

    def fault(self, cluster):
        return cluster.json("nodes")[0]["devices"][0]["fault"]

    def test_a_gpu_that_a_job_of_another_cluster_has_waits_until_it_is_free(self):
        first = self.submit(self.one, "first", "sleep", "600")
        wait_until(lambda: self.one.get(first)["state"] == "running", "the first job runs")
        wait_until(lambda: self.fault(self.two), "the other cluster sees that its GPU is taken")
        self.assertEqual(self.fault(self.two), "in use elsewhere")
        self.assertIn(f"GPU-of-both in use elsewhere on this machine, by job {first} of another worker",
                      self.two.muster("nodes").stdout)
        self.assertIsNone(self.fault(self.one), "its own job has it")

        second = self.submit(self.two, "second", "true")
        self.assertEqual(self.two.get(second)["state"], "queued")
        self.assertIn(f"node-1: GPU-of-both in use elsewhere on this machine, by job {first}",
                      self.two.muster("explain", second).stdout)
        self.assertEqual(self.two.get(second)["generation"], 0, "it was not tried in vain")
        self.one.muster("cancel", first)
        self.assertEqual(self.two.wait(second), 0, self.two.describe(second))
        wait_until(lambda: not self.fault(self.one), "the GPU is free")


if __name__ == "__main__":
    unittest.main()
