"""<output>/tensorboard as TensorBoard itself reads it, after a rank 0 that was killed."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import unittest

SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
sys.path.insert(0, str(SUPPORT))

from cluster import Cluster, read_metrics  # noqa: E402

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
PYTHON = CACHE / "muster" / "tensorboard" / "bin" / "python"
STEPS = 30


def single(value):
    """Of a double, what a float keeps."""
    return struct.unpack("f", struct.pack("f", value))[0]


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class TensorBoard(unittest.TestCase):
    def curves(self, folder):
        # Tests fail, and do not skip, without it: tests/run installs it.
        self.assertTrue(os.access(PYTHON, os.X_OK), "run deploy/install-deps --tests")
        done = subprocess.run([PYTHON, SUPPORT / "tensorboard_curves.py", folder],
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_curves_are_those_of_the_last_attempt_of_each_step(self):
        cluster = Cluster(self)
        rows = cluster.path("eval.jsonl")
        rows.write_text(json.dumps({"prompt": "1 plus 1", "completion": "2"}) + "\n",
                        encoding="utf-8")
        # Rank 0 lives on node 1: without snapshots it goes back to a checkpoint, some steps ago.
        spec = cluster.train_job(steps=STEPS, every=10)
        spec["train"]["data"]["eval"] = str(rows)
        spec["train"]["eval"] = {"every": 10, "samples": ["1 plus 1"], "max_new_tokens": 4}
        job = cluster.submit(spec)
        cluster.wait_for_step(job, 5)
        for rank in (0, 1):
            cluster.kill_rank(job, rank)
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
        self.assertGreaterEqual(cluster.get(job)["generation"], 2)
        output = cluster.output(job)

        files = sorted(path.name for path in (output / "tensorboard").iterdir())
        self.assertGreaterEqual(len(files), 2, "every attempt has a file of its own")
        curves = self.curves(output / "tensorboard")
        scalars = curves["scalars"]
        metrics = read_metrics(output)
        for tag, key in (("train/loss", "loss"), ("train/grad_norm", "grad_norm"),
                         ("train/learning_rate", "lr"), ("gang/generation", "generation"),
                         ("speed/tokens_per_second", "tokens_per_second")):
            with self.subTest(tag=tag):
                self.assertEqual(scalars[tag], [[step, single(entry[key])]
                                                for step, entry in sorted(metrics.items())])
        self.assertEqual([step for step, _ in scalars["train/loss"]], list(range(1, STEPS + 1)))

        evaluations = {entry["step"]: entry for entry in lines(output / "eval.jsonl")}
        self.assertEqual(dict(scalars["eval/loss"]),
                         {step: single(entry["loss"]) for step, entry in evaluations.items()})
        samples = {entry["step"]: entry["text"] for entry in lines(output / "samples.jsonl")}
        self.assertEqual(dict(curves["texts"]["samples/1 plus 1"]), samples)


if __name__ == "__main__":
    unittest.main()
