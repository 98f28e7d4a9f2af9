"""configs/recipes: each fits the hardware that it names, and each trains: the same file with a tiny
model of the same family, two ranks of this machine and two steps. Every family has one.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from families import FAMILIES, MIXTURES  # noqa: E402
from gang import Gang  # noqa: E402

TRAINER = pathlib.Path(os.environ["MUSTER_BIN_DIR"]) / "muster-trainer"
RECIPES = sorted((ROOT / "configs" / "recipes").glob("*.yaml"))
SHAPES = ROOT / "configs" / "recipes" / "shapes"
TRIED = ROOT / "configs" / "recipes" / "llama-8b-full-8xh100.yaml"
QLORA = ROOT / "configs" / "recipes" / "llama-70b-qlora-2x24gb.yaml"
RANKS = 2
# What takes the place of these keys in a model's shape; rows are whole blocks of 64 weights.
TINY = {"hidden_size": 128, "intermediate_size": 192, "moe_intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}


def said(recipe, what):
    """The rest of the comment line "# WHAT: ..."."""
    return re.search(rf"^# {what}: (.*)$", recipe.read_text(), re.M).group(1)


class Recipes(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)
        self.root = pathlib.Path(self.temp.name)

    def plan(self, recipe, *options):
        shape = SHAPES / (said(recipe, "shape") + ".json")
        done = subprocess.run([TRAINER, "plan", recipe, "-o", "json", "--model", shape,
                               *self.hardware(recipe, options), *options],
                              timeout=60, capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (0, 1), f"{recipe.name}: {done.stderr}")
        return json.loads(done.stdout)

    @staticmethod
    def hardware(recipe, options):
        """What the recipe names, but for what is given in its place."""
        words = said(recipe, "plan").split()
        return [word for pair in zip(words[::2], words[1::2]) if pair[0] not in options
                for word in pair]

    def test_each_fits_its_hardware(self):
        self.assertTrue(RECIPES)
        for recipe in RECIPES:
            plan = self.plan(recipe)
            self.assertTrue(plan["fits"], f"{recipe.name}: {plan['memory']}")
            self.assertIsNotNone(plan["hours"], recipe.name)

    def test_seventy_billion_do_not_fit_half_of_it(self):
        recipe = ROOT / "configs" / "recipes" / "llama-70b-full-2x8xa100-80.yaml"
        half = self.plan(recipe, "--nodes", "1")
        self.assertFalse(half["fits"])
        self.assertTrue(half["suggestions"])

    def test_seventy_billion_train_adapters_on_two_gpus_of_24_gb(self):
        recipe = ROOT / "configs" / "recipes" / "llama-70b-full-2x8xa100-80.yaml"
        small = ["--nodes", "1", "--ranks-per-node", "2", "--device", "RTX-4090", "--lora", "16",
                 "--host-memory-gb", "180"]
        self.assertFalse(self.plan(recipe, *small)["fits"])
        offload = ["--nf4", "--set", "train.fsdp.cpu_offload=true"]
        plan = self.plan(recipe, *small, *offload)
        self.assertTrue(plan["fits"], plan["memory"])
        self.assertLess(plan["memory"]["device_bytes"], 22.8e9)

    def tiny_model(self):
        model = self.root / "model"
        subprocess.run([TRAINER, "init-model", "--preset", "tiny", "--out", model], check=True,
                       timeout=60, capture_output=True)
        return model

    def tiny_model_like(self, shape):
        """The model of a shape's file but for its sizes, once for all recipes of it."""
        model, config = self.root / f"model-{shape}", self.root / f"{shape}.json"
        if not model.exists():
            keys = json.loads((SHAPES / f"{shape}.json").read_text())
            tiny = {key: value for key, value in TINY.items() if key in keys or key == "head_dim"}
            config.write_text(json.dumps({**keys, **tiny}))
            subprocess.run([TRAINER, "init-model", "--config", config, "--out", model], check=True,
                           timeout=60, capture_output=True)
        return model

    def test_every_family_has_one(self):
        planned = {json.loads((SHAPES / f"{said(recipe, 'shape')}.json").read_text())["model_type"] for recipe in RECIPES}
        self.assertEqual({config.get("model_type", "llama") for config in (*FAMILIES.values(), *MIXTURES.values())}, planned)

    def test_each_trains_a_tiny_model(self):
        for recipe in RECIPES:
            with self.subTest(recipe.name):
                lines = self.train(recipe, self.tiny_model_like(said(recipe, "shape")), recipe.stem, {})
                self.assertEqual([line["step"] for line in lines], [1, 2])
                self.assertTrue(all(line["loss"] > 0 for line in lines))

    def smoke(self, lr, verb=("smoke",)):
        """Exit codes of the ranks, and rank 0's report."""
        out = self.root / "smoke"
        command = [TRAINER, *verb, *self.small(TRIED, self.root / "model", out),
                   "--set", f"train.optimizer.lr={lr}"]
        with Gang(command, world=RANKS, logs=self.root / "logs") as gang:
            codes = [process.wait(180) for process in gang.processes]
            said = (gang.logs / "rank-0.log").read_text()
        self.assertFalse(out.exists(), "something is left behind")
        return codes, said

    def test_a_trial_says_whether_a_job_would_train(self):
        self.tiny_model()
        codes, said = self.smoke("1.0e-3")
        self.assertEqual(codes, [0, 0], said)
        self.assertNotIn("FAILED", said)
        for line in ("loss on the rows of the first step", "equal on 2 of 2 ranks",
                     "checkpoint written, read back", "MB planned", "per second and device"):
            self.assertIn(f"ok      {line}" if line.startswith("loss") else line, said)

    def test_a_trial_after_one_that_was_killed_begins_anew(self):
        model = self.tiny_model()
        left = self.root / "smoke" / ".smoke" / "first"
        command = [TRAINER, "train", *self.small(TRIED, model, left),
                   "--set", "train.checkpoint.every=2"]
        with Gang(command, world=RANKS, logs=self.root / "logs" / "left") as gang:
            gang.wait(180)
        self.assertTrue(list(left.glob("checkpoints/*/manifest.json")), "as if it had been killed")
        codes, said = self.smoke("1.0e-3")
        self.assertEqual(codes, [0, 0], said)
        self.assertIn("equal on 2 of 2 ranks", said)

    def test_a_trial_fails_where_nothing_is_learned(self):
        self.tiny_model()
        codes, said = self.smoke("1.0e-30", verb=("train", "--smoke"))
        self.assertEqual(codes, [1, 0], said)
        self.assertIn("FAILED  loss on the rows", said)

    def test_adapters_over_four_bits_learn_alike_wherever_the_packed_weights_wait(self):
        """On processors they wait in host memory in any case; tests/parity/adapters_test.cc has
        the case where that is not the device's.
        """
        model = self.tiny_model()
        runs = [self.train(QLORA, model, f"offload-{offload}", {
            "train.schedule": "{kind: constant, warmup_ratio: 0, max_steps: 30}",
            "train.optimizer.lr": "3.0e-3", "train.fsdp.cpu_offload": offload})
            for offload in ("true", "false")]
        losses = [line["loss"] for line in runs[0]]
        self.assertEqual(len(losses), 30)
        self.assertLess(sum(losses[-5:]), 0.95 * sum(losses[:5]))
        for one, other in zip(*runs, strict=True):
            for number in ("loss", "grad_norm"):
                self.assertEqual(one[number], other[number], f"step {one['step']}")
        adapters = [(self.root / f"offload-{offload}" / "adapter" / "adapter_model.safetensors")
                    .read_bytes() for offload in ("true", "false")]
        self.assertEqual(adapters[0], adapters[1])

    def small(self, recipe, model, out):
        """The recipe for a tiny model on this machine, as arguments."""
        settings = {"workdir": recipe.parent, "resources": f"{{nodes: 1, ranks_per_node: {RANKS}}}",
                    "train.model.path": model, "train.data.max_seq_len": 64,
                    "train.batch.accumulation": 1, "train.schedule": "{kind: cosine, max_steps: 2}",
                    "train.output.dir": out}
        return [recipe, *(word for key, value in settings.items()
                          for word in ("--set", f"{key}={value}"))]

    def train(self, recipe, model, name, settings):
        """The lines of metrics.jsonl."""
        out = self.root / name
        command = [TRAINER, "train", *self.small(recipe, model, out),
                   *(word for key, value in settings.items()
                     for word in ("--set", f"{key}={value}"))]
        with Gang(command, world=RANKS, logs=self.root / "logs" / name) as gang:
            gang.wait(180)
        return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


if __name__ == "__main__":
    unittest.main()
