"""Adapters on experts against PEFT, which adapts the parameters that transformers keep experts in
(target_parameters), and on the modules beside them: 20 steps of training that begin with an adapter that PEFT has
made, in fp64 and fp32, over whole weights and over those in four bits, and the trained adapter in PEFT's hands.

Weights and adapters are drawn anew in every run (drawn.py), those in fp32 are fixed: where two experts are about as
likely, rounding chooses.

Fails, and does not skip, where Python torch is missing: tests/run --label peer installs it.
"""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from training_parity import MIXTURES, AdapterParity  # noqa: E402

EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
EVERYWHERE = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "o_proj"], "target_parameters": EXPERTS}
# Ranks, and rows and micro-batches of each: batches of 4 rows.
WAYS = ((1, 4, 1), (2, 2, 1), (4, 1, 1))


class MixtureParity(AdapterParity):
    steps = 20

    def of_mixture(self, family, precision="fp64", **config):
        return self.on_model(fixed=precision == "fp32", **{**MIXTURES[family], **config})


class OnExperts(MixtureParity):
    def test_fp64_losses_are_those_of_peft(self):
        for family in MIXTURES:
            with self.subTest(family=family), self.of_mixture(family):
                self.check_return(self.compare("fp64", EVERYWHERE, [(1, self.steps, 1e-12)], ways=WAYS))

    def test_one_parameter_alone_with_rslora_over_dense_layers_too(self):
        """Which learns so little that the rows of the last step may be harder than those of the first."""
        for parameter in EXPERTS:
            config = {"r": 3, "lora_alpha": 4, "use_rslora": True, "target_modules": [],
                      "target_parameters": [parameter]}
            with self.subTest(parameter=parameter), self.of_mixture("qwen3_moe", mlp_only_layers=[1]):
                adapter = self.compare("fp64", config, [(1, self.steps, 1e-12)], ways=WAYS[1:2], learned=1.01)
                self.check_return(adapter)
                saved = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
                self.assertEqual((saved["target_modules"], saved["target_parameters"]), ([], [parameter]))

    def test_one_expert_and_all_of_them(self):
        for experts, per_token in ((1, 1), (3, 3)):
            config = {"num_local_experts": experts, "num_experts_per_tok": per_token}
            with self.subTest(experts=experts), self.of_mixture("mixtral", **config):
                self.check_return(self.compare("fp64", EVERYWHERE, [(1, self.steps, 1e-12)], ways=WAYS[:2]))

    def test_fp32_losses_are_those_of_peft(self):
        for family in MIXTURES:
            with self.subTest(family=family), self.of_mixture(family, "fp32"):
                self.compare("fp32", EVERYWHERE, [(1, self.steps, 1e-6)], ways=WAYS[:2])

    def test_experts_that_ranks_divide_are_those_of_peft(self):
        for precision, limit in (("fp64", 1e-12), ("fp32", 1e-6)):
            fsdp = {"mixed_precision": precision, "expert_parallel": 2}
            with self.subTest(precision=precision), self.of_mixture("qwen3_moe", precision):
                self.check_return(self.compare(precision, EVERYWHERE, [(1, self.steps, limit)], ways=WAYS[1:], fsdp=fsdp))


class BesideExperts(MixtureParity):
    """The shared expert and the dense layers of a Qwen2-MoE. With three layers PEFT saves all-linear as names."""
    configs = ({"target_modules": "all-linear"},
               {"target_modules": ["v_proj", "down_proj", "shared_expert_gate"], "target_parameters": EXPERTS},
               {"target_modules": ["shared_expert.gate_proj", "shared_expert.up_proj"], "use_rslora": True})

    def compare_each(self, precision, limit, ways):
        for config in self.configs:
            with self.subTest(**config), self.of_mixture("qwen2_moe", precision, num_hidden_layers=3,
                                                                  mlp_only_layers=[1]):
                adapter = self.compare(precision, {"r": 4, "lora_alpha": 8, **config}, [(1, self.steps, limit)], ways)
                self.check_return(adapter)

    def test_fp64_losses_are_those_of_peft(self):
        self.compare_each("fp64", 1e-12, WAYS[:2])

    def test_fp32_losses_are_those_of_peft(self):
        self.compare_each("fp32", 1e-6, WAYS[1:2])

    def test_all_linear_of_a_gpt_oss_is_its_attention(self):
        config = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}
        with self.of_mixture("gpt_oss", num_hidden_layers=5):
            self.check_return(self.compare("fp64", config, [(1, self.steps, 1e-12)], WAYS[1:2]))


class OnExpertsInFourBits(AdapterParity):
    """Rows of all matrices are whole blocks of 64 (packed_adapter_parity_test.py)."""
    steps = 20
    shape = {"intermediate_size": 128}

    def compare_packed(self, precision, limits, ways):
        for family in ("qwen3_moe", "qwen2_moe", "mixtral", "gpt_oss"):
            model, lora = {**MIXTURES[family], **self.shape}, dict(EVERYWHERE)
            if family.startswith("qwen"):
                model["moe_intermediate_size"] = 64
            if family == "qwen2_moe":
                model["shared_expert_intermediate_size"] = 128
                lora["target_modules"] = ["q_proj", "gate_proj", "up_proj", "down_proj", "shared_expert_gate"]
            for twice in (False, True):
                with self.subTest(family=family, double_quant=twice), self.on_model(fixed=precision == "fp32", **model):
                    self.compare(precision, lora, limits, ways,
                                 quantization={"kind": "nf4", "double_quant": twice})

    def test_fp64_losses_are_those_of_the_matrices_that_bitsandbytes_reads_back(self):
        self.compare_packed("fp64", [(1, self.steps, 1e-9)], WAYS[:2])

    def test_fp32_losses_are_those_of_bitsandbytes(self):
        # Where experts are chosen, rounding grows: 2e-5 was seen over 20 steps, with equal values in fp64.
        self.compare_packed("fp32", [(1, 1, 1e-6), (2, self.steps, 5e-5)], WAYS[1:2])


if __name__ == "__main__":
    unittest.main()
