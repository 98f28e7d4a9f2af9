"""Models with experts against transformers: 20 steps of training in fp64 on models whose shapes and weights are drawn
anew in every run (drawn.py), in fp32 on fixed ones, and what is exported.

Fails, and does not skip, where Python torch is missing: tests/run --label peer installs it.
"""

import json
import pathlib
import random
import sys
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from training_parity import MIXTURES, TrainingParity, learnable_rows  # noqa: E402

LIMITS = {"fp64": 1e-12, "fp32": 1e-6}
# Ranks, and rows and micro-batches of each: micro-batches of 1 row, 6 in a step.
WAYS = ((1, 1, 6), (2, 1, 3), (3, 1, 2))
# What a draw would seldom hit.
ODD = {"one expert": {"experts": 1, "per_token": 1}, "all experts": {"experts": 3, "per_token": 3}}


def draw_shape(source):
    """A small decoder of any proportions; head_dim is none of hidden_size / heads where a family allows it."""
    kv_heads = source.choice((1, 2, 3))
    heads = kv_heads * source.choice((1, 2))
    experts = source.randrange(2, 12)
    return {"hidden_size": heads * 2 * source.randrange(4, 13), "intermediate_size": source.randrange(20, 90),
            "num_hidden_layers": source.randrange(2, 5), "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "head_dim": 2 * source.randrange(4, 17),
            "vocab_size": source.randrange(259, 400), "tie_word_embeddings": source.random() < 0.5,
            "experts": experts, "per_token": source.randrange(1, experts + 1),
            "output_router_logits": source.random() < 0.7, "router_aux_loss_coef": source.choice((0.01, 0.3)),
            "norm_topk_prob": source.random() < 0.5, "moe_intermediate_size": source.randrange(20, 90),
            "shared_expert_intermediate_size": source.randrange(20, 90),
            "decoder_sparse_step": source.choice((1, 1, 2)), "mlp_only_layers": source.choice(([], [0], [1]))}


def config_of(family, precision, shape):
    """The keys that the family has."""
    config = {**MIXTURES[family], **shape}
    count = "num_local_experts" if family in ("mixtral", "gpt_oss") else "num_experts"
    config[count], config["num_experts_per_tok"] = config.pop("experts"), config.pop("per_token")
    # Where a bound cuts, rounding decides what is trained: fp32 strays there, transformers' own by 4e-4.
    if family == "gpt_oss" and precision == "fp64":
        config["swiglu_limit"] = 0.2
    if family in ("olmoe", "qwen2_moe"):
        config["head_dim"] = config["hidden_size"] // config["num_attention_heads"]
    if family not in ("qwen2_moe", "qwen3_moe"):
        for key in ("moe_intermediate_size", "decoder_sparse_step", "mlp_only_layers"):
            del config[key]
    if family != "qwen2_moe":
        del config["shared_expert_intermediate_size"]
    return config


class MixturesOfExperts(TrainingParity):
    steps = 20

    def compare(self, family, precision, seed, odd=None):
        shape = {**draw_shape(random.Random(seed)), **ODD.get(odd, {})}
        print(f"{family} {precision} {odd or ''}: {json.dumps(shape)}", flush=True)
        with self.subTest(family=family, precision=precision, seed=seed, odd=odd, shape=json.dumps(shape)):
            model = self.new_model(seed=seed, **config_of(family, precision, shape))
            with unittest.mock.patch.object(type(self), "model", model):
                train = self.train_block(precision)
                train["optimizer"]["grad_clip"] = 0.0
                reference = self.their_curves(train, batch=6, micro=1)
                for way in WAYS:
                    curves = self.our_curves(train, *way)
                    for name, curve in curves.items():
                        distance = max(self.distances(curve, reference[name]))
                        print(f"{family} {precision} {odd or ''} {way[0]} ranks, {name}: {distance:.1e}")
                        self.assertLessEqual(distance, LIMITS[precision], f"{name}, {way[0]} ranks")
                self.compare_export(learnable_rows()[:3], 1e-4)

    def test_shapes_that_are_drawn(self):
        for family in MIXTURES:
            self.compare(family, "fp64", self.draw(family))

    def test_odd_shapes(self):
        for odd in ODD:
            for family in MIXTURES:
                self.compare(family, "fp64", self.draw(family, odd), odd)

    # Fixed seeds: in fp32 two experts that are about as likely may change places.
    def test_fp32(self):
        for family in MIXTURES:
            # With 3 transformers' own fp32 strays from its fp64 in a gpt-oss by 1.5e-6, ours by 2e-9.
            self.compare(family, "fp32", 4 if family == "gpt_oss" else 3)


if __name__ == "__main__":
    unittest.main()
