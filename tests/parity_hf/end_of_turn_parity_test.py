"""A base model whose files name no end of a turn, trained on conversations: what is exported stops
at the end of its turn in transformers, with nothing said about it there.

Fails, and does not skip, where Python torch is missing: tests/run --label peer installs it.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import peer  # noqa: E402
from cluster import BIN, init_model, run  # noqa: E402
from gang import Gang  # noqa: E402

LIMIT_S = 240
END_OF_TEXT, END_OF_TURN = 256, 258
MOST_TOKENS = 40


class EndOfTurn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        peer.require()
        temp = tempfile.TemporaryDirectory(prefix="muster-turns-")
        cls.addClassCleanup(temp.cleanup)
        cls.root = pathlib.Path(temp.name)
        cls.base = init_model(cls.root / "base")
        for name in ("config.json", "generation_config.json"):
            path = cls.base / name
            path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")),
                                        "eos_token_id": END_OF_TEXT}), encoding="utf-8")
        cls.rows = cls.root / "rows.jsonl"
        cls.rows.write_text("".join(
            json.dumps({"messages": [{"role": "user", "content": str(i)},
                                     {"role": "assistant", "content": "yes"}]}) + "\n"
            for i in range(100)), encoding="utf-8")

    def train(self, name, steps, **blocks):
        out = self.root / name
        job = {"name": name, "resources": {"nodes": 1, "ranks_per_node": 1},
               "train": {"model": {"path": str(self.base)},
                         "data": {"train": str(self.rows), "max_seq_len": 64},
                         "fsdp": {"mixed_precision": "fp32"}, "optimizer": {"lr": 1.0e-3},
                         "schedule": {"kind": "constant", "max_steps": steps, "warmup_ratio": 0},
                         "batch": {"per_rank": 8}, "output": {"dir": str(out)}, **blocks}}
        file = self.root / f"{name}.yaml"
        file.write_text(json.dumps(job), encoding="utf-8")
        with Gang([BIN / "muster-trainer", "train", file], world=1, logs=out / "logs") as gang:
            gang.wait(LIMIT_S)
        return out

    def answer(self, model):
        """Ids with which transformers answers."""
        done = subprocess.run(
            [str(word) for word in (peer.PYTHON, HERE / "reference_chat.py", "--model", model,
                                    "--tokens", MOST_TOKENS, "--say", "7")],
            timeout=LIMIT_S, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def test_transformers_stops_where_the_turn_ends(self):
        model = self.train("whole", steps=40) / "model"
        self.assertEqual(self.answer(model), [*b"yes", END_OF_TURN])
        said = json.loads(run("muster-trainer", "generate", "--model", model, "--chat", "--prompt",
                              "7", "--json").stdout)
        self.assertEqual((said["text"], said["finish_reason"]), ("yes", "end_of_text"))
        # With the base model's own file it does not.
        shutil.copy(self.base / "generation_config.json", model)
        on_and_on = self.answer(model)
        self.assertEqual(on_and_on[:4], [*b"yes", END_OF_TURN])
        self.assertEqual(len(on_and_on), MOST_TOKENS)

    def test_an_adapter_brings_the_end_to_the_model_that_it_is_merged_into(self):
        adapter = self.train("adapter", steps=1, lora={"r": 4}) / "adapter"
        merged = self.root / "merged"
        run("muster-trainer", "merge", "--adapter", adapter, "--model", self.base, "--out", merged)
        config = json.loads((merged / "generation_config.json").read_text(encoding="utf-8"))
        self.assertEqual(config["eos_token_id"], [END_OF_TEXT, END_OF_TURN])


if __name__ == "__main__":
    unittest.main()
