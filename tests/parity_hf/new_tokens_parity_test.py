"""Models that get new tokens, against what transformers makes of the same model.

Fails, and does not skip, where Python torch is missing: tests/run --label peer installs it.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "support"))
import peer  # noqa: E402
from cluster import BIN, init_model, write_rows  # noqa: E402
from gang import Gang  # noqa: E402

LIMIT_S = 240
MULTIPLE = 640  # the model has 512 rows


class NewTokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        peer.require()
        temp = tempfile.TemporaryDirectory(prefix="muster-tokens-")
        cls.addClassCleanup(temp.cleanup)
        cls.root = pathlib.Path(temp.name)
        cls.model = init_model(cls.root / "model")
        cls.train()
        program = pathlib.Path(__file__).resolve().parent / "reference_new_tokens.py"
        done = subprocess.run(
            [peer.PYTHON, program, "--model", cls.model, "--special", "<|x|>", "--plain", "<tool>",
             "--multiple", str(MULTIPLE), "--ours", cls.root / "out" / "model"],
            timeout=LIMIT_S, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        cls.theirs = json.loads(done.stdout.splitlines()[-1])

    @classmethod
    def train(cls):
        """One step that moves no weight by more than 1e-12."""
        job = {"name": "tokens", "resources": {"nodes": 1, "ranks_per_node": 2},
               "train": {"model": {"path": str(cls.model), "pad_vocab_to": MULTIPLE,
                                   "add_tokens": ["<|x|>", {"content": "<tool>", "special": False}]},
                         "data": {"train": str(write_rows(cls.root / "rows.jsonl")),
                                  "max_seq_len": 64},
                         "fsdp": {"mixed_precision": "fp32"},
                         "optimizer": {"lr": 1.0e-12},
                         "schedule": {"kind": "constant", "max_steps": 1, "warmup_ratio": 0},
                         "output": {"dir": str(cls.root / "out")}}}
        file = cls.root / "job.yaml"
        file.write_text(json.dumps(job), encoding="utf-8")
        with Gang([BIN / "muster-trainer", "train", file], world=2, logs=cls.root / "logs") as gang:
            gang.wait(LIMIT_S)

    def ours(self, name):
        return json.loads((self.root / "out" / "model" / name).read_text(encoding="utf-8"))

    def test_the_files_of_the_tokenizer_say_the_same(self):
        self.assertEqual(self.ours("tokenizer.json")["added_tokens"], self.theirs["added_tokens"])
        if self.theirs["decoder"] is not None:
            self.assertEqual(self.ours("tokenizer_config.json")["added_tokens_decoder"],
                             self.theirs["decoder"])

    def test_transformers_reads_the_same_ids_with_our_tokenizer(self):
        theirs, with_ours = self.theirs["ids"]
        self.assertEqual(with_ours, theirs)
        self.assertIn(259, theirs)
        self.assertIn(260, theirs)

    def test_rows_are_those_of_a_resized_model_but_for_its_noise(self):
        """transformers draws it with a billionth of the rows' covariance."""
        self.assertEqual(self.theirs["vocab_size"], [MULTIPLE, MULTIPLE])
        for name, distance in self.theirs["distance"].items():
            self.assertLess(distance, 1e-5, name)


if __name__ == "__main__":
    unittest.main()
