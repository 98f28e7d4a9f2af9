"""Exported models, in one file and in several, as transformers and safetensors load them.

Fails, and does not skip, where Python torch is missing: tests/run --label peer installs it.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "support"))
import peer  # noqa: E402
from cluster import BIN, init_model  # noqa: E402
from gang import Gang  # noqa: E402
from token_rows import write_npy  # noqa: E402

LIMIT_S = 240
WORDS = 200


def trainer(*arguments):
    done = subprocess.run([BIN / "muster-trainer", *map(str, arguments)], timeout=LIMIT_S,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


class ExportedModels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        peer.require()
        temp = tempfile.TemporaryDirectory(prefix="muster-export-")
        cls.addClassCleanup(temp.cleanup)
        cls.root = pathlib.Path(temp.name)
        cls.model = init_model(cls.root / "model")
        source = random.Random(3)
        rows = [[source.randrange(WORDS) for _ in range(48)] for _ in range(16)]
        cls.train(write_npy(cls.root / "rows.npy", rows))
        cls.ids = cls.root / "ids.jsonl"
        cls.ids.write_text("".join(json.dumps(row) + "\n" for row in rows[:4]), encoding="utf-8")

    @classmethod
    def train(cls, rows):
        cls.out = cls.root / "out"
        job = {"name": "export", "resources": {"nodes": 1, "ranks_per_node": 2},
               "train": {"model": {"path": str(cls.model)},
                         "data": {"train": str(rows), "max_seq_len": 48},
                         "fsdp": {"mixed_precision": "fp32"},
                         "schedule": {"max_steps": 3}, "checkpoint": {"every": 3},
                         "output": {"dir": str(cls.out), "max_shard_size": "2MB"}}}
        file = cls.root / "job.yaml"
        file.write_text(json.dumps(job), encoding="utf-8")
        with Gang([BIN / "muster-trainer", "train", file], world=2, logs=cls.root / "logs") as gang:
            gang.wait(LIMIT_S)

    def theirs(self, model):
        program = pathlib.Path(__file__).resolve().parent / "reference_logits.py"
        done = subprocess.run([peer.PYTHON, program, "--model", model, "--ids", self.ids],
                              timeout=LIMIT_S, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def compare(self, model):
        scored = json.loads(trainer("score", "--model", model, "--ids", self.ids, "-o", "json"))
        reference = self.theirs(model)
        for row, theirs in zip(scored["rows"], reference["logprobs"], strict=True):
            for ours, their in zip(row["logprobs"], theirs, strict=True):
                self.assertAlmostEqual(ours, their, delta=1e-5)
        return reference

    def test_a_model_in_several_files(self):
        files = sorted(path.name for path in (self.out / "model").glob("*.safetensors"))
        self.assertGreater(len(files), 3)
        self.assertEqual(files[0], f"model-00001-of-{len(files):05}.safetensors")
        for file in files:
            self.assertLess((self.out / "model" / file).stat().st_size, 2.1e6)
        self.compare(self.out / "model")

    def test_the_same_model_in_one_file(self):
        whole = self.root / "whole"
        trainer("export", "--checkpoint", self.out / "checkpoints", "--out", whole, "--format", "hf",
                "--model", self.model)
        self.assertEqual([path.name for path in whole.glob("*.safetensors*")], ["model.safetensors"])
        reference = self.compare(whole)
        self.assertEqual(reference, self.theirs(self.out / "model"))

    def test_a_split_export_of_a_checkpoint(self):
        split = self.root / "split"
        trainer("export", "--checkpoint", self.out / "checkpoints", "--out", split, "--format", "hf",
                "--model", self.model, "--max-shard-size", "2MB")
        ours, theirs = (sorted(folder.glob("model*")) for folder in (split, self.out / "model"))
        self.assertEqual([path.name for path in ours], [path.name for path in theirs])
        for one, other in zip(ours, theirs):
            self.assertEqual(one.read_bytes(), other.read_bytes(), one.name)


if __name__ == "__main__":
    unittest.main()
