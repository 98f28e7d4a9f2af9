"""The main job: two nodes train, a rank is killed, and nothing but some seconds is lost."""

import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, read_metrics, run, trajectory  # noqa: E402


class MainJob(unittest.TestCase):
    def test_a_killed_rank_changes_no_loss_by_a_bit(self):
        cluster = Cluster(self)
        calm = cluster.submit(cluster.train_job())
        self.assertEqual(cluster.wait(calm), 0, cluster.describe(calm))
        expected = trajectory(cluster.output(calm))
        self.assertEqual([step for step, _, _ in expected], list(range(1, 81)))
        # The same model and data, and a fault between two checkpoints.
        for rank in (1, 0):
            with self.subTest(rank=rank):
                job = cluster.submit(cluster.train_job())
                cluster.wait_for_step(job, 30)
                cluster.kill_rank(job, rank)
                self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
                self.check_story(cluster, job, rank)
                self.assertEqual(trajectory(cluster.output(job)), expected)

    def check_story(self, cluster, job, rank):
        got = cluster.get(job)
        self.assertEqual(got["state"], "succeeded")
        self.assertEqual(got["generation"], 2)
        failed, after = got["attempts"]
        self.assertEqual(failed["failed_rank"], rank)
        self.assertIn("SIGKILL", failed["cause"])
        self.assertEqual(after["resumed_from"], "snapshot")
        self.assertGreaterEqual(after["resumed_step"], 29)
        self.assertLessEqual(failed["lost_steps"], 1)
        for stage in ("detect", "abort", "reform", "load", "first_step"):
            self.assertIsNotNone(after["seconds"][stage], stage)
            self.assertGreaterEqual(after["seconds"][stage], 0, stage)
        story = cluster.describe(job)
        self.assertIn("SIGKILL", story)
        self.assertIn(f"rank {rank}", story)
        self.assertIn(str(after["resumed_step"]), story)

    def test_the_output_directory_holds_what_was_promised(self):
        cluster = Cluster(self)
        job = cluster.submit(cluster.train_job(steps=25, every=10))
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
        output = cluster.output(job)
        metrics = read_metrics(output)
        self.assertEqual(sorted(metrics), list(range(1, 26)))
        for key in ("step", "loss", "grad_norm", "lr", "tokens", "step_seconds",
                    "tokens_per_second", "generation", "world_size"):
            self.assertIn(key, metrics[25])
        self.assertEqual(metrics[25]["world_size"], 2)
        for name in ("config.json", "tokenizer.json"):
            self.assertTrue((output / "model" / name).exists(), name)
        self.assertTrue(list((output / "model").glob("*.safetensors")))
        for rank in (0, 1):
            self.assertTrue((output / "logs" / "1" / f"rank-{rank}.log").exists())
        self.check_newest_checkpoint(cluster, job)
        run("muster-trainer", "generate", "--model", output / "model", "--prompt", "Hello",
            "--max-tokens", "4")

    def check_newest_checkpoint(self, cluster, job):
        newest = cluster.checkpoints(job)[-1]
        manifest = json.loads((newest / "manifest.json").read_text())
        self.assertEqual(manifest["step"], 25)
        self.assertEqual(len(manifest["shards"]), 2)


if __name__ == "__main__":
    unittest.main()
