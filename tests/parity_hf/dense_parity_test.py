"""Scalings of rotary embeddings, Granite and Phi-3 against transformers: 20 steps of training in fp64 on models whose
shapes and weights are drawn anew in every run (drawn.py), in fp32 on drawn and on fixed ones, and what is exported.

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

LIMITS = {"fp64": 1e-12, "fp32": 1e-6}
# Ranks, and rows and micro-batches of each: 6 rows in a step.
WAYS = ((1, 1, 6), (2, 3, 1), (3, 1, 2))
ORIGINAL = TOKENS // 2  # positions before a scaling: the rows are longer
SHORTER = 12  # a row that is not


def draw_shape(source):
    """A small decoder of any proportions; head_dim is none of hidden_size / heads."""
    kv_heads = source.choice((1, 2, 3))
    heads = kv_heads * source.choice((1, 2))
    return {"hidden_size": heads * 2 * source.randrange(6, 13), "intermediate_size": source.randrange(20, 90),
            "num_hidden_layers": source.randrange(2, 5), "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "head_dim": 2 * source.randrange(6, 17),
            "vocab_size": source.randrange(259, 400), "tie_word_embeddings": source.random() < 0.5,
            "rms_norm_eps": source.choice((1e-5, 1e-6))}


def longrope(source, pairs):
    factors = [sorted(source.uniform(1, most) for _ in range(pairs)) for most in (1.5, 12)]
    return {"rope_type": "longrope", "short_factor": factors[0], "long_factor": factors[1],
            "original_max_position_embeddings": ORIGINAL}


def linear(_source, _shape):
    return {"rope_scaling": {"rope_type": "linear", "factor": 2.5}}


def dynamic(_source, _shape):
    return {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": ORIGINAL}


def yarn(source, _shape):
    return {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL,
                             "truncate": source.random() < 0.5}}


def long(source, shape):
    return {"rope_scaling": longrope(source, shape["head_dim"] // 2)}


def granite(source, _shape):
    return {**FAMILIES["granite"], "embedding_multiplier": source.uniform(2, 14),
            "residual_multiplier": source.uniform(0.2, 1), "logits_scaling": source.uniform(2, 10)}


def phi3(source, _shape):
    return {**FAMILIES["phi3"], "partial_rotary_factor": source.choice((0.4, 0.5, 0.75, 1.0)),
            "sliding_window": source.choice((None, 17, 2 * TOKENS))}


def phi3_long(source, shape):
    """transformers counts the factors by hidden_size / heads."""
    head_dim, partial = shape["hidden_size"] // shape["num_attention_heads"], source.choice((0.5, 0.75, 1.0))
    pairs = int(head_dim * partial) // 2
    return {**FAMILIES["phi3"], "head_dim": head_dim, "partial_rotary_factor": 2 * pairs / head_dim,
            "rope_scaling": longrope(source, pairs), "original_max_position_embeddings": ORIGINAL}


KINDS = {"linear": linear, "dynamic": dynamic, "yarn": yarn, "longrope": long, "granite": granite, "phi3": phi3,
         "phi3 longrope": phi3_long}


class DenseModels(TrainingParity):
    steps = 20

    def compare(self, kind, precision, seed, strays=False):
        source = random.Random(seed)
        shape = draw_shape(source)
        config = {**shape, **KINDS[kind](source, shape)}
        print(f"{kind} {precision}: {json.dumps(config)}", flush=True)
        with self.subTest(kind=kind, precision=precision, seed=seed, config=json.dumps(config)):
            model = self.new_model(seed=seed, **config)
            with unittest.mock.patch.object(type(self), "model", model):
                train = self.train_block(precision)
                train["optimizer"]["grad_clip"] = 0.0
                reference = self.their_curves(train, batch=6)
                limit = LIMITS[precision] + (self.straying(train, reference, batch=6) if strays else 0)
                for way in WAYS:
                    curves = self.our_curves(train, *way)
                    for name, curve in curves.items():
                        distance = max(self.distances(curve, reference[name]))
                        print(f"{kind} {precision} {way[0]} ranks, {name}: {distance:.1e}")
                        self.assertLessEqual(distance, limit, f"{name}, {way[0]} ranks")
                rows = learnable_rows()
                self.compare_export((rows[0][:SHORTER], rows[1][:ORIGINAL + 9], rows[2]), 1e-5)  # of unequal lengths

    def test_shapes_that_are_drawn(self):
        for kind in KINDS:
            self.compare(kind, "fp64", self.draw(kind))

    def test_fp32_is_as_close_as_the_reference_is_to_itself(self):
        for kind in KINDS:
            self.compare(kind, "fp32", self.draw(kind), strays=True)

    def test_fp32(self):
        for kind in KINDS:
            self.compare(kind, "fp32", 3)


if __name__ == "__main__":
    unittest.main()
