"""Invented GPUs: ranks get devices by id, and training on them computes on the CPU."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, fake_gpus, read_metrics  # noqa: E402

GPUS = [{"count": 4, "kind": "NVIDIA H100 80GB HBM3", "memory": "80GB", "numa": 0, "nvlink": "0"}]
FAKE = "the GPUs of this node are fake: training on the CPU"


class FakeGpus(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(self, nodes=2, up=("--fake-gpus", fake_gpus(self, GPUS)))

    def devices_seen(self, **resources):
        """What each rank of a command job on two nodes has in CUDA_VISIBLE_DEVICES, with its node."""
        script = 'echo "$CUDA_VISIBLE_DEVICES $MUSTER_FAKE_GPUS"'
        job = self.cluster.submit({
            "name": "devices", "workdir": str(self.cluster.root), "command": ["sh", "-c", script],
            "resources": {"nodes": 2, "ranks_per_node": 2, "device": "cuda", **resources}})
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        folder = self.cluster.output(job) / "logs" / "1"
        seen = []
        for rank in self.cluster.get(job)["ranks"]:
            visible, fake = (folder / f"rank-{rank['rank']}.log").read_text().split()
            self.assertEqual(fake, "1")
            seen.append((rank["node"], visible.split(",")))
        return seen

    def test_each_rank_sees_its_own_devices(self):
        seen = self.devices_seen(gpus_per_rank=2)
        self.assertEqual(len(seen), 4)
        for node, devices in seen:
            self.assertEqual(len(devices), 2)
            for device in devices:
                self.assertRegex(device, f"^FAKE-{node}-[0-3]$")
        every = [device for _, devices in seen for device in devices]
        self.assertEqual(len(set(every)), 8, seen)

    def test_a_rank_may_see_all_devices_of_its_job_on_the_node(self):
        seen = self.devices_seen(visible_gpus="node")
        for node, devices in seen:
            self.assertEqual(len(devices), 2)
            self.assertEqual([devices], [d for n, d in seen if n == node][:1])

    def train_job(self, **options):
        spec = self.cluster.train_job(**options)
        spec["resources"]["device"] = "cuda"
        return spec

    def log(self, job, generation, rank):
        return (self.cluster.output(job) / "logs" / str(generation) / f"rank-{rank}.log").read_text()

    def test_a_train_job_on_them_trains_on_the_cpu_and_says_so_once(self):
        job = self.cluster.submit(self.train_job(steps=6, every=3))
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.assertEqual(max(read_metrics(self.cluster.output(job))), 6)
        self.assertEqual(self.log(job, 1, 0).count(FAKE), 1)
        self.assertNotIn(FAKE, self.log(job, 1, 1))

    def test_a_standby_takes_over_on_the_cpu_too(self):
        job = self.cluster.submit(self.train_job(steps=400, every=100))
        self.cluster.wait_for_step(job, 5)
        self.cluster.kill_rank(job, 1)
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.assertEqual(len(self.cluster.get(job)["attempts"]), 2)


if __name__ == "__main__":
    unittest.main()
