"""Gemma 2 and 3 against transformers: 20 steps of training in fp64 on models whose shapes and weights are drawn anew in
every run (drawn.py), in fp32 on drawn and on fixed ones, and what is exported.

Fails, and does not skip, where Python torch is missing: tests/run --label peer installs it.
"""

import json
import pathlib
import random
import sys
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from training_parity import FAMILIES, TOKENS, TrainingParity, learnable_rows  # noqa: E402

GEMMAS = ("gemma2", "gemma3")
LIMITS = {"fp64": 1e-12, "fp32": 1e-6}
# Ranks, and rows and micro-batches of each: 6 rows in a step.
WAYS = ((1, 6, 1), (2, 1, 3), (3, 2, 1))
# What a draw would seldom hit.
ODD = {"window of one": {"sliding_window": 1},
       "narrow heads": {"num_attention_heads": 6, "num_key_value_heads": 1, "head_dim": 2, "hidden_size": 84},
       "untied": {"tie_word_embeddings": False},
       "nothing slides": {"layer_types": ["full_attention"] * 3, "num_hidden_layers": 3}}
OF_GEMMA2 = {"no caps": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
             "tight caps": {"attn_logit_softcapping": 0.2, "final_logit_softcapping": 1.0}}


def draw_shape(source):
    """A small decoder of any proportions, whose head_dim is none of hidden_size / heads."""
    kv_heads = source.choice((1, 2, 3))
    heads = kv_heads * source.choice((1, 2))
    layers = source.randrange(2, 5)
    shape = {"hidden_size": heads * source.randrange(8, 25), "intermediate_size": source.randrange(20, 90),
             "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
             "head_dim": 2 * source.randrange(2, 21), "vocab_size": source.randrange(259, 400),
             "query_pre_attn_scalar": source.randrange(1, 300), "sliding_window": source.randrange(1, TOKENS + 10)}
    if source.random() < 0.5:
        shape["layer_types"] = [source.choice(("full_attention", "sliding_attention")) for _ in range(layers)]
    return shape


def config_of(family, shape, source):
    """With what only this family has."""
    own = {"attn_logit_softcapping": source.choice((None, 1.0, 50.0)),
           "final_logit_softcapping": source.choice((None, 2.0, 30.0))}
    if family == "gemma3":
        factor = source.choice((None, 8.0))
        own = {"sliding_window_pattern": source.choice((2, 3, 6)), "rope_local_base_freq": source.choice((100.0, 1e4)),
               "rope_scaling": {"rope_type": "linear", "factor": factor} if factor else None}
    return {**FAMILIES[family], **own, **shape}


class Gemmas(TrainingParity):
    steps = 20

    def compare(self, family, precision, seed, odd=None, changes=None, ways=WAYS, strays=False):
        source = random.Random(seed)
        config = {**config_of(family, draw_shape(source), source), **(changes or {})}
        if odd and "layer_types" not in changes and "num_hidden_layers" not in changes:
            config.pop("layer_types", None)
        print(f"{family} {precision} {odd or ''}: {json.dumps(config)}", flush=True)
        with self.subTest(family=family, precision=precision, seed=seed, odd=odd, config=json.dumps(config)):
            model = self.new_model(seed=seed % 1000, **config)
            with unittest.mock.patch.object(type(self), "model", model):
                train = self.train_block(precision)
                train["optimizer"]["grad_clip"] = 0.0
                reference = self.their_curves(train, batch=6)
                limit = LIMITS[precision] + (self.straying(train, reference, batch=6) if strays else 0)
                for way in ways:
                    curves = self.our_curves(train, *way)
                    for name, curve in curves.items():
                        distance = max(self.distances(curve, reference[name]))
                        print(f"{family} {precision} {odd or ''} {way[0]} ranks, {name}: {distance:.1e}", flush=True)
                        self.assertLessEqual(distance, limit, f"{name}, {way[0]} ranks")
                self.compare_export(learnable_rows()[:3], 1e-5)

    def test_shapes_that_are_drawn(self):
        for family in GEMMAS:
            for number in range(2):
                self.compare(family, "fp64", self.draw(family, number))

    def test_odd_shapes(self):
        for family in GEMMAS:
            for odd, changes in {**ODD, **(OF_GEMMA2 if family == "gemma2" else {})}.items():
                self.compare(family, "fp64", self.draw(family, odd), odd, changes, WAYS[1:2])

    def test_fp32_is_as_close_as_the_reference_is_to_itself(self):
        for family in GEMMAS:
            self.compare(family, "fp32", self.draw(family), strays=True)

    def test_fp32(self):
        for family in GEMMAS:
            self.compare(family, "fp32", 3)


if __name__ == "__main__":
    unittest.main()
