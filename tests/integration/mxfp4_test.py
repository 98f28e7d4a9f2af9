"""A gpt-oss whose experts lie in MXFP4: read as the numbers that they are, and what comes out of merge and export."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN  # noqa: E402
from gang import Gang  # noqa: E402
from mxfp4_model import EXPERTS, is_matrix_of_experts, make_models, read_tensors, write_tensors  # noqa: E402

LIMIT_S = 120
BAD_INPUT = 78
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
OF_EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


class Mxfp4(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory(prefix="muster-mxfp4-")
        cls.addClassCleanup(temp.cleanup)
        cls.root = pathlib.Path(temp.name)
        cls.packed, cls.plain = make_models(cls.root)
        cls.rows = cls.root / "rows.jsonl"
        cls.rows.write_text("".join(json.dumps({"text": f"the {word} and the sea"}) + "\n" for word in
                                    ("ship", "captain", "rope", "wind", "harbour", "gull", "sail", "night")),
                            encoding="utf-8")
        cls.ids = cls.root / "ids.jsonl"
        cls.ids.write_text("".join(json.dumps([(7 * row + 3 * i) % 256 for i in range(40)]) + "\n" for row in range(3)),
                           encoding="utf-8")

    def verb(self, *arguments, code=0):
        done = subprocess.run([BIN / "muster-trainer", *map(str, arguments)], timeout=LIMIT_S, capture_output=True,
                              text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if arguments[0] == "score" else done.stderr

    def score(self, model, *more):
        rows = json.loads(self.verb("score", "--model", model, "--ids", self.ids, "-o", "json", *more))["rows"]
        return [row["logprobs"] for row in rows]

    def assert_close(self, scores, others, delta):
        for ours, theirs in zip(scores, others, strict=True):
            self.assertLess(max(abs(a - b) for a, b in zip(ours, theirs, strict=True)), delta)

    def train(self, model, name, world=2, **blocks):
        folder = self.root / name
        folder.mkdir()
        job = {"name": name, "resources": {"nodes": 1, "ranks_per_node": world},
               "train": {"model": {"path": str(model)}, "data": {"train": str(self.rows), "max_seq_len": 32},
                         "optimizer": {"lr": 0.05}, "schedule": {"kind": "constant", "max_steps": 2},
                         "batch": {"per_rank": 2}, "checkpoint": {"every": 2}, "output": {"dir": str(folder)}, **blocks}}
        file = folder / "job.yaml"
        file.write_text(json.dumps(job), encoding="utf-8")
        with Gang([BIN / "muster-trainer", "train", file], world=world, logs=folder) as gang:
            gang.wait(LIMIT_S)
        return folder

    def merge(self, adapter, name, *more):
        said = self.verb("merge", "--adapter", adapter, "--model", self.packed, "--out", self.root / name, *more)
        return self.root / name, said

    def quantization(self, model):
        return json.loads((model / "config.json").read_text(encoding="utf-8")).get("quantization_config")

    def test_it_is_the_model_of_its_numbers(self):
        self.assertEqual(self.score(self.packed), self.score(self.plain))
        losses = []
        for model in (self.packed, self.plain):
            lines = (self.train(model, f"full-{model.name}") / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            losses.append([json.loads(line)["loss"] for line in lines if "loss" in line])
        self.assertEqual(losses[0], losses[1])

    def test_untouched_experts_come_out_byte_for_byte(self):
        trained = self.train(self.packed, "attention", lora={"r": 4, "target_modules": ATTENTION})
        merged, said = self.merge(trained / "adapter", "merged-attention")
        self.assertNotIn("relative error", said)
        before, after = read_tensors(self.packed), read_tensors(merged)
        self.assertEqual(before.keys(), after.keys())
        changed = {name for name in before if before[name] != after[name]}
        self.assertEqual({name.split(".")[-2] for name in changed}, set(ATTENTION))
        self.assertEqual(self.quantization(merged), self.quantization(self.packed))
        self.assert_close(self.score(merged), self.score(self.packed, "--adapter", trained / "adapter"), 0.2)

    def test_changed_experts_are_numbers_unless_mxfp4_is_asked_for(self):
        trained = self.train(self.packed, "experts", lora={"r": 4, "target_modules": OF_EXPERTS})
        merged, _ = self.merge(trained / "adapter", "merged-experts")
        self.assertIsNone(self.quantization(merged))
        plain = read_tensors(self.plain)
        self.assertEqual({name: of[:2] for name, of in read_tensors(merged).items()},
                         {name: of[:2] for name, of in plain.items()})
        again, said = self.merge(trained / "adapter", "merged-again", "--mxfp4")
        error = float(re.search(r"experts in MXFP4: relative error (\S+) ", said).group(1))
        self.assertGreater(error, 0.0)
        self.assertLess(error, 0.2)
        self.assertEqual({name: of[:2] for name, of in read_tensors(again).items()},
                         {name: of[:2] for name, of in read_tensors(self.packed).items()})
        self.assertEqual(self.quantization(again)["quant_method"], "mxfp4")
        self.assert_close(self.score(again), self.score(merged), 1.0)

    def test_a_trained_model_is_exported_as_numbers_or_in_mxfp4(self):
        trained = self.train(self.packed, "whole")
        exported = trained / "model"
        self.assertIsNone(self.quantization(exported))
        self.assertEqual(read_tensors(exported).keys(), read_tensors(self.plain).keys())
        arguments = ("export", "--checkpoint", trained / "checkpoints", "--format", "hf", "--model", self.packed)
        self.verb(*arguments, "--out", self.root / "as-numbers")
        self.assertEqual(read_tensors(self.root / "as-numbers"), read_tensors(exported))
        said = self.verb(*arguments, "--out", self.root / "as-mxfp4", "--mxfp4")
        self.assertIn("relative error", said)
        codes = read_tensors(self.root / "as-mxfp4")
        blocks = codes["model.layers.0.mlp.experts.down_proj_blocks"]
        self.assertEqual(blocks[:2], ("U8", [EXPERTS, 64, 1, 16]))
        for name, of in read_tensors(exported).items():
            if not is_matrix_of_experts(name):
                self.assertEqual(codes[name], of, name)

    def test_config_json_says_what_the_tensors_are(self):
        """Of a model with some experts in MXFP4 and some not, which came out as numbers that config.json called MXFP4."""
        mixed = self.root / "mixed"
        subprocess.run(["cp", "-r", self.packed, mixed], check=True)
        name = "model.layers.0.mlp.experts.down_proj"
        tensors, plain = read_tensors(self.packed), read_tensors(self.plain)
        del tensors[name + "_blocks"], tensors[name + "_scales"]
        write_tensors(mixed, {**tensors, name: plain[name]})
        self.assertEqual(self.score(mixed), self.score(self.plain))
        trained = self.train(mixed, "on-mixed", world=1, lora={"r": 4, "target_modules": ATTENTION})
        for more in ((), ("--mxfp4",)):
            out = self.root / f"merged-mixed{len(more)}"
            self.verb("merge", "--adapter", trained / "adapter", "--model", mixed, "--out", out, *more)
            self.assertEqual(bool(more), name + "_blocks" in read_tensors(out))
            self.assertEqual(bool(more), self.quantization(out) is not None)
        fresh = self.root / "fresh"
        self.verb("init-model", "--config", self.packed / "config.json", "--out", fresh)
        self.assertIsNone(self.quantization(fresh))

    def test_damaged_and_unsuitable_ones_are_refused(self):
        broken = self.root / "broken"
        subprocess.run(["cp", "-r", self.packed, broken], check=True)
        config = json.loads((broken / "config.json").read_text(encoding="utf-8"))
        config["quantization_config"]["quant_method"] = "awq"
        (broken / "config.json").write_text(json.dumps(config), encoding="utf-8")
        self.assertIn('quant_method "awq" is not supported',
                      self.verb("inspect", broken, code=BAD_INPUT))
        self.assertIn("has no experts that files hold in MXFP4",
                      self.verb("merge", "--adapter", self.root, "--model", self.root / "base", "--out",
                                self.root / "never", "--mxfp4", code=BAD_INPUT))


if __name__ == "__main__":
    unittest.main()
