"""A checkpoint with a flipped byte is refused by name and the one before it is used."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, trajectory, wait_until  # noqa: E402


def flip_byte(path):
    with open(path, "r+b") as file:
        file.seek(-1000, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1000, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))


class CheckpointDamage(unittest.TestCase):
    def test_the_checkpoint_before_is_used_and_the_story_says_so(self):
        cluster = Cluster(self)
        # Without snapshots, which would be newer than any checkpoint.
        options = {"steps": 120, "every": 40, "snapshot": {"every": 0}}
        calm = cluster.submit(cluster.train_job(**options))
        self.assertEqual(cluster.wait(calm), 0, cluster.describe(calm))
        job = cluster.submit(cluster.train_job(**options))
        newest = wait_until(lambda: len(cluster.checkpoints(job)) >= 2 and cluster.checkpoints(job)[-1],
                            "two checkpoints are committed")
        shard = sorted(newest.glob("*.shard"))[1]
        flip_byte(shard)
        cluster.kill_rank(job, 0)
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
        self.assertEqual(cluster.get(job)["attempts"][1]["resumed_step"], 40)
        story = cluster.describe(job)
        self.assertIn(newest.name, story)
        self.assertIn("checksum", story)
        self.assertEqual(trajectory(cluster.output(job)), trajectory(cluster.output(calm)))


if __name__ == "__main__":
    unittest.main()
