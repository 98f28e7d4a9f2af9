"""muster-trainer plan against what training jobs really take: arrays to the byte, the peak of every
rank to ten percent, or five, over strategies, precisions, recomputation and numbers of ranks.

The ranks run without daemons; what each held is in memory.json.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from gang import Gang  # noqa: E402
from token_rows import write_npy  # noqa: E402

TRAINER = pathlib.Path(os.environ["MUSTER_BIN_DIR"]) / "muster-trainer"
# Products in bf16 keep kernels for the shapes that they have met, of which the plan knows nothing.
CPU_FLAGS = set(pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
HAS_BF16 = {"amx_bf16", "avx512_bf16"} & CPU_FLAGS
MOST_APART = 0.10
CLOSE = MOST_APART if HAS_BF16 else 0.05
# Without AVX-512 MKL keeps buffers of its own for products in bf16, 56 MB beside packed matrices and dropout: with
# MKL_DISABLE_FAST_MM=1 the same job takes so much less.
OF_LIBRARIES = 0 if "avx512f" in CPU_FLAGS else 60e6

JOB = """
name: planned
workdir: {folder}
resources: {{nodes: 1, ranks_per_node: {world}}}
train:
  model: {{path: {model}}}
  data: {{train: rows.npy, max_seq_len: {length}}}
  fsdp: {{{fsdp}}}
  optimizer: {{lr: 1.0e-3{optimizer}}}
  schedule: {{max_steps: 2}}
  batch: {{per_rank: {rows}, accumulation: {accumulation}}}
  output: {{dir: out}}
  {adapters}
"""

# 32 M parameters: enough that most of the memory is not the libraries'.
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512,
          "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8,
          "num_key_value_heads": 4, "vocab_size": 8192}
# Wide, shallow, and with a small vocabulary: beside adapters the frozen matrices of blocks are most of what is held.
WIDE = {**CONFIG, "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 4,
        "num_attention_heads": 12, "vocab_size": 1024, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16"}

# Families whose blocks hold other things.
FAMILIES = {
    "granite": {**CONFIG, "architectures": ["GraniteForCausalLM"], "model_type": "granite", "num_hidden_layers": 4,
                "embedding_multiplier": 12.0, "attention_multiplier": 0.015625, "residual_multiplier": 0.22,
                "logits_scaling": 8.0},
    "phi3": {**CONFIG, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "num_hidden_layers": 4,
             "partial_rotary_factor": 0.75, "sliding_window": 64},
    "gemma2": {**CONFIG, "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "head_dim": 64,
               "num_hidden_layers": 4, "sliding_window": 64, "query_pre_attn_scalar": 64,
               "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
               "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True},
    "gemma3": {**CONFIG, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "head_dim": 64,
               "num_hidden_layers": 4, "sliding_window": 64, "sliding_window_pattern": 3, "query_pre_attn_scalar": 64,
               "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True},
    "gpt_oss": {**CONFIG, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 2,
                "intermediate_size": 512, "num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 64,
                "sliding_window": 64, "attention_bias": True},
    "qwen3_moe": {**CONFIG, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
                  "num_hidden_layers": 2, "moe_intermediate_size": 256, "num_experts": 16,
                  "num_experts_per_tok": 4, "head_dim": 64, "norm_topk_prob": True},
    "qwen2_moe": {**CONFIG, "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
                  "num_hidden_layers": 3, "mlp_only_layers": [0], "moe_intermediate_size": 256, "num_experts": 8,
                  "num_experts_per_tok": 2, "shared_expert_intermediate_size": 512},
    "olmoe": {**CONFIG, "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "num_hidden_layers": 2,
              "intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 4},
    "mixtral": {**CONFIG, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_hidden_layers": 2,
                "intermediate_size": 1024, "num_local_experts": 4, "num_experts_per_tok": 2},
}
MIXTURES = [name for name, values in FAMILIES.items() if "num_experts_per_tok" in values]
IN_FOUR_BITS = ("phi3", "gemma2", "qwen2_moe", "olmoe", "mixtral")
NF4 = "\n  quantization: {kind: nf4}"
ON_EXPERTS = ("lora: {r: 8, target_modules: [q_proj, k_proj, v_proj, o_proj, mlp.experts.gate_up_proj, "
              "mlp.experts.down_proj]}")


class Plan(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temp.cleanup)
        cls.root = pathlib.Path(cls.temp.name)
        for name, values in (("model", CONFIG), ("tied", {**CONFIG, "tie_word_embeddings": True}),
                             ("wide", WIDE), *FAMILIES.items()):
            config = cls.root / f"{name}.json"
            config.write_text(json.dumps(values))
            subprocess.run([TRAINER, "init-model", "--config", config, "--out", cls.root / name],
                           check=True, timeout=60, capture_output=True)

    def job(self, world=1, length=128, rows=2, accumulation=1, fsdp="", optimizer="",
            model="model", adapters=""):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.root))
        numbers = random.Random(7)
        write_npy(folder / "rows.npy",
                  [[numbers.randrange(300) for _ in range(length)] for _ in range(16)])
        (folder / "job.yaml").write_text(JOB.format(
            folder=folder, world=world, model=self.root / model, length=length, fsdp=fsdp, optimizer=optimizer,
            rows=rows, accumulation=accumulation, adapters=adapters))
        return folder

    def plan(self, folder, *options):
        done = subprocess.run([TRAINER, "plan", folder / "job.yaml", "-o", "json", *options],
                              timeout=60, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr

    def compare(self, least_frozen=0, most_apart=MOST_APART, of_libraries=0, **how):
        folder = self.job(**how)
        code, plan = self.plan(folder, "--standalone")
        self.assertEqual(code, 0, plan)
        with Gang([TRAINER, "train", folder / "job.yaml"], world=how.get("world", 1),
                  logs=folder / "logs") as gang:
            gang.wait(180)
        parts = plan["memory"]["parts"]

        def planned(*names):
            return sum(parts[name]["host_bytes"] for name in names if name in parts)

        gathered = parts["unsharded_parameters"]
        # A single rank's shard of frozen weights is the gathered array; ranks of one host hold a
        # part each of one that they share.
        alone = planned("frozen_weights") if how.get("world", 1) == 1 else 0
        arrays = {"state": planned("master_weights", "moments", "gradient_sums", "compute_copy"),
                  "snapshots": 0,
                  "gathered": alone + (0 if gathered["shared"] else gathered["host_bytes"]),
                  "gradients": planned("gradient_slots"),
                  "activations": planned("activations"),
                  "head": planned("head_and_logits")}
        if "expert_parallel" in how.get("fsdp", ""):
            del arrays["activations"]  # a rank keeps the rows that come, of which the plan has even loads
        for rank in json.loads((folder / "out" / "memory.json").read_text())["ranks"]:
            self.assertEqual({name: rank["arrays"][name] for name in arrays}, arrays, how)
            self.assertLessEqual(rank["arrays"]["frozen"], planned("frozen_weights") - alone, how)
            self.assertTrue(rank["train"]["of_stage"], "the kernel keeps no peak of a stage")
            self.assertGreaterEqual(planned("frozen_weights") / rank["train"]["peak"],
                                    least_frozen, how)
            expected = plan["memory"]["host_bytes"]
            if "no_shard" in how.get("fsdp", "") and rank["rank"] > 0:
                expected -= planned("checkpoint_copy")  # replicas write none
            apart = expected / rank["train"]["peak"] - 1
            print(f"{how}: planned {apart:+.1%} of {rank['train']['peak'] / 1e6:.0f} MB",
                  file=sys.stderr)
            self.assertLessEqual(abs(apart), most_apart + of_libraries / rank["train"]["peak"], how)

    def test_one_rank_in_each_precision(self):
        self.compare()
        self.compare(fsdp="mixed_precision: fp32")
        self.compare(optimizer=", master_weights: bf16, moments: bf16")

    def test_each_level_of_recomputation(self):
        for level in ("none", "selective", "full"):
            self.compare(rows=4, length=256, fsdp=f"activation_checkpointing: {level}")

    def test_a_head_over_several_chunks(self):
        """Those of the levels above have an fp32 array for its gradient; a frozen head and fp32 have none."""
        self.compare(rows=4, length=256, model="tied", world=2)
        self.compare(rows=4, length=256, adapters="lora: {r: 8}")
        self.compare(rows=4, length=256, fsdp="mixed_precision: fp32")

    def test_each_strategy_over_two_ranks(self):
        for strategy in ("full_shard", "shard_grad_op", "no_shard"):
            self.compare(world=2, fsdp=f"strategy: {strategy}")

    def test_two_ranks_in_other_ways(self):
        self.compare(world=2, fsdp="mixed_precision: fp32, blocks_per_unit: 3")
        self.compare(world=2, accumulation=2, fsdp="reduce: step")
        self.compare(world=2, model="tied", optimizer=", moments: bf16")

    def test_three_ranks(self):
        self.compare(world=3, fsdp="activation_checkpointing: full")

    def test_adapters_over_frozen_weights(self):
        """Of a model whose frozen weights are half of the peak, and in 4 bits a sixth of it."""
        self.compare(model="wide", least_frozen=0.45, adapters="lora: {r: 8}")
        self.compare(model="wide", least_frozen=0.15, of_libraries=OF_LIBRARIES,
                     adapters="lora: {r: 8, dropout: 0.1}\n  quantization: {kind: nf4}")
        self.compare(model="wide", world=2, least_frozen=0.15,
                     adapters="lora: {r: 8}\n  quantization: {kind: nf4}")
        self.compare(adapters="lora: {r: 8, modules_to_save: [embed_tokens]}\n"
                              "  quantization: {double_quant: false}")

    def test_other_families(self):
        for model in FAMILIES:
            adapters = ON_EXPERTS if model in MIXTURES else "lora: {r: 8}"
            self.compare(most_apart=CLOSE, model=model)
            self.compare(most_apart=0.05, model=model, fsdp="mixed_precision: fp32",
                         adapters=adapters + (NF4 if model in IN_FOUR_BITS else ""))

    def test_experts_that_ranks_divide(self):
        fsdp = "expert_parallel: 2, activation_checkpointing: "
        self.compare(most_apart=CLOSE, model="mixtral", world=2, fsdp=fsdp + "full")
        self.compare(most_apart=CLOSE, model="qwen3_moe", world=2, fsdp=fsdp + "none")
        fsdp = "expert_parallel: 2, mixed_precision: fp32"
        self.compare(most_apart=0.05, model="qwen3_moe", world=2, fsdp=fsdp, adapters=ON_EXPERTS)
        self.compare(most_apart=0.05, model="gpt_oss", world=2, fsdp=fsdp, adapters=ON_EXPERTS + NF4)

    def test_exit_codes_and_what_is_said(self):
        folder = self.job(world=2)
        self.assertEqual(self.plan(folder)[0], 0)
        code, plan = self.plan(folder, "--host-memory-gb", "0.6")
        self.assertEqual(code, 1)
        self.assertFalse(plan["fits"])
        self.assertEqual(self.plan(folder, "--set", "resources.device=cuda")[0], 78)
        self.assertEqual(self.plan(folder, "--device", "H100-80")[1]["device"], "H100-80")
        code, said = self.plan(folder, "--set", "train.batch.per_rank=0")
        self.assertEqual(code, 78)
        self.assertIn("train.batch.per_rank", said)
        for nf4 in ((), ("--nf4",)):  # adapters are on attention and experts there
            code, plan = self.plan(folder, "--model", ROOT / "configs" / "recipes" / "shapes" / "olmoe-1b-7b.json",
                                   "--device", "H100-80", "--lora", "8", *nf4)
            self.assertEqual(code, 0, plan)
        # No weights are needed, only their shapes.
        code, plan = self.plan(folder, "--model", str(self.root / "model.json"), "--device", "A10",
                               "--cost-per-hour", "2")
        self.assertEqual(code, 0)
        self.assertAlmostEqual(plan["cost"], 2 * plan["hours"])


if __name__ == "__main__":
    unittest.main()
