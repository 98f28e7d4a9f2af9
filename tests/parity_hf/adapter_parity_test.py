"""The losses of adapters, over whole weights and over weights in four bits, against those of PEFT
with transformers and bitsandbytes on the same weights, rows and job.

Training begins with an adapter that PEFT has made, random B included, and PEFT gets the trained one
back. bitsandbytes computes in fp32 at most; for fp64 the matrices that it reads back are put into
the model as they are (reference_train.py).

Fails, and does not skip, where Python torch is missing: tests/run --label peer installs it.
"""

import json
import pathlib
import subprocess
import sys
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from training_parity import LEARNING_RATE, LIMIT_S, WAYS, TrainingParity  # noqa: E402
from cluster import BIN  # noqa: E402

EVERYWHERE = {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"}
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
# What sets a family's blocks apart from those of a plain Llama. Mistral's window is shorter than
# the rows.
FAMILIES = {
    "llama": {},
    "llama 3.2": {"rope_scaling": LLAMA3_ROPE, "tie_word_embeddings": True},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral",
                "sliding_window": 40},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "head_dim": 32},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32},
}


class AdapterParity(TrainingParity):
    def of_family(self, name):
        """Within it the test's model is one of this family."""
        return unittest.mock.patch.object(type(self), "model", self.new_model(**FAMILIES[name]))

    def peft_adapter(self, config):
        folder = self.folder("peft")
        path, adapter = folder / "lora.json", folder / "adapter"
        path.write_text(json.dumps(config), encoding="utf-8")
        self.reference("make_adapter.py", "--model", self.model, "--config", path, "--out", adapter)
        return adapter

    def compare(self, precision, config, limits, ways=WAYS, **blocks):
        """`blocks`: of the job's train block. Returns what the last run has exported."""
        adapter = self.peft_adapter(config)
        lora = {"r": config["r"], "alpha": config["lora_alpha"],
                "rslora": config.get("use_rslora", False), "bias": config.get("bias", "none"),
                "target_modules": config["target_modules"],
                "modules_to_save": config.get("modules_to_save", []), "init_from": str(adapter)}
        train = {**self.train_block(precision), **blocks}
        train["optimizer"]["lr"] = 10 * LEARNING_RATE
        reference = self.theirs(train, batch=4, adapter=adapter)
        for way in ways:
            losses = self.ours({**train, "lora": lora}, *way)
            self.check(self.distances(losses, reference), limits, precision=precision,
                       world=way[0])
        self.assertLess(reference[-1], 0.99 * reference[0], "the adapter did not learn anything")
        return self.root / f"{self.runs}-ours" / "adapter"

    def check_return(self, adapter):
        merged = self.folder("merged") / "model"
        subprocess.run([BIN / "muster-trainer", "merge", "--adapter", adapter, "--model",
                        self.model, "--out", merged], check=True, capture_output=True,
                       timeout=LIMIT_S)
        distance = self.reference("peft_logits.py", "--model", self.model, "--adapter", adapter,
                                  "--merged", merged, "--rows", self.rows)
        self.assertLessEqual(float(distance), 1e-5)


class OverWholeWeights(AdapterParity):
    def test_fp64_losses_of_every_family_are_those_of_peft(self):
        for family in FAMILIES:
            with self.subTest(family=family), self.of_family(family):
                self.check_return(
                    self.compare("fp64", EVERYWHERE, [(1, self.steps, 1e-9)], ways=WAYS[1:]))

    def test_so_are_those_with_modules_trained_whole_and_with_biases(self):
        whole = {"r": 8, "lora_alpha": 4, "use_rslora": True,
                 "target_modules": ["q_proj", "v_proj"], "modules_to_save": ["lm_head"]}
        self.check_return(self.compare("fp64", whole, [(1, self.steps, 1e-9)]))
        biased = {"r": 4, "lora_alpha": 8, "bias": "all", "modules_to_save": ["norm"],
                  "target_modules": ["q_proj", "o_proj", "up_proj"]}
        with self.of_family("qwen2"):
            self.check_return(self.compare("fp64", biased, [(1, self.steps, 1e-9)]))

    def test_fp32_losses_are_those_of_peft(self):
        self.compare("fp32", {"r": 4, "lora_alpha": 6, "target_modules": "all-linear"},
                     [(1, 1, 1e-6), (2, 20, 1e-5), (21, self.steps, 1e-4)])


class OverWeightsInFourBits(AdapterParity):
    """Rows of all matrices are whole blocks of 64, as in every published model: elsewhere
    bitsandbytes 0.50 reads other values back on a CPU than it has packed.
    """
    steps = 20

    def of_family(self, name):
        return unittest.mock.patch.object(
            type(self), "model", self.new_model(**FAMILIES[name], intermediate_size=704))

    def compare_packed(self, precision, limits, ways):
        for family in ("llama", "qwen2"):
            for twice in (False, True):
                with self.subTest(family=family, double_quant=twice), self.of_family(family):
                    self.compare(precision, EVERYWHERE, limits, ways,
                                 quantization={"kind": "nf4", "double_quant": twice})

    def test_fp32_losses_are_those_of_bitsandbytes(self):
        self.compare_packed("fp32", [(1, 1, 1e-6), (2, self.steps, 1e-5)], WAYS)

    def test_fp64_losses_are_those_of_the_matrices_that_bitsandbytes_reads_back(self):
        self.compare_packed("fp64", [(1, self.steps, 1e-9)], WAYS[1:])

    def test_each_kind_of_weights_has_a_loss_of_its_own(self):
        """Or the limits above would tell none from the other."""
        kinds = [{"quantization": {"kind": "nf4", "double_quant": twice}} for twice in (False, True)]
        with self.of_family("llama"):
            adapter = self.peft_adapter(EVERYWHERE)
            train = self.train_block("fp32")
            whole, once, twice = (self.theirs({**train, **kind}, batch=4, adapter=adapter)[0]
                                  for kind in ({}, *kinds))
        self.assertGreater(abs(once - whole) / whole, 1e-5)
        self.assertGreater(abs(twice - once) / once, 1e-5)


if __name__ == "__main__":
    unittest.main()
