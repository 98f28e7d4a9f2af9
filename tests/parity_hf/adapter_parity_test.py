"""The losses of adapters against those of PEFT on the same weights, rows and job, and the trained
adapter in PEFT's hands. Weights and adapters are drawn anew in every run (drawn.py).

Fails, and does not skip, where Python torch is missing: tests/run --label peer installs it.
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from training_parity import EVERYWHERE, FAMILIES, WAYS, AdapterParity  # noqa: E402


class OverWholeWeights(AdapterParity):
    def test_fp64_losses_with_modules_trained_whole_and_with_biases_are_those_of_peft(self):
        whole = {"r": 8, "lora_alpha": 4, "use_rslora": True,
                 "target_modules": ["q_proj", "v_proj"], "modules_to_save": ["lm_head"]}
        with self.on_model():
            self.check_return(self.compare("fp64", whole, [(1, self.steps, 1e-9)]))
        biased = {"r": 4, "lora_alpha": 8, "bias": "all", "modules_to_save": ["norm"],
                  "target_modules": ["q_proj", "o_proj", "up_proj"]}
        with self.of_family("qwen2"):
            self.check_return(self.compare("fp64", biased, [(1, self.steps, 1e-9)]))

    def test_fp32_losses_are_those_of_peft(self):
        with self.on_model():
            self.compare("fp32", {"r": 4, "lora_alpha": 6, "target_modules": "all-linear"},
                         [(1, 1, 1e-6), (2, 20, 1e-5), (21, self.steps, 1e-4)])


class OfEveryFamily(AdapterParity):
    steps = 20

    def test_fp64_losses_are_those_of_peft(self):
        for family in FAMILIES:
            with self.subTest(family=family), self.of_family(family):
                self.check_return(
                    self.compare("fp64", EVERYWHERE, [(1, self.steps, 1e-9)], ways=WAYS[1:]))


if __name__ == "__main__":
    unittest.main()
