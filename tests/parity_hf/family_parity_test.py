"""SmolLM3 and OLMo 2 against transformers in fp64: 20 steps of training on models whose shapes and weights are drawn
anew in every run (drawn.py), and what is exported.

Fails, and does not skip, where Python torch is missing: tests/run --label peer installs it.
"""

import json
import pathlib
import random
import sys
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from training_parity import FAMILIES, WAYS, TrainingParity, learnable_rows  # noqa: E402

LIMIT = 1e-12
SHAPES = 3  # for each family


def draw_shape(source):
    """A small decoder of any proportions."""
    kv_heads = source.choice((1, 2, 3))
    heads = kv_heads * source.choice((1, 2, 3))
    head_dim = 2 * source.randrange(4, 17)
    return {"hidden_size": heads * head_dim, "intermediate_size": source.randrange(40, 161),
            "num_hidden_layers": source.randrange(2, 6), "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "head_dim": head_dim, "vocab_size": source.randrange(259, 400),
            "rms_norm_eps": source.choice((1e-5, 1e-6)), "tie_word_embeddings": source.random() < 0.5}


class FamiliesInFp64(TrainingParity):
    steps = 20

    def compare(self, family):
        for number in range(SHAPES):
            seed = self.draw(number)
            shape = draw_shape(random.Random(seed))
            print(f"{family}: {json.dumps(shape)}", flush=True)
            with self.subTest(family=family, seed=seed, shape=json.dumps(shape)):
                model = self.new_model(seed=seed, **FAMILIES[family], **shape)
                with unittest.mock.patch.object(type(self), "model", model):
                    train = self.train_block("fp64")
                    reference = self.theirs(train, batch=4)
                    for way in WAYS:
                        distances = self.distances(self.ours(train, *way), reference)
                        self.assertLessEqual(max(distances), LIMIT, f"{way[0]} ranks")
                        self.compare_export(learnable_rows()[:3], 1e-4)

    def test_smollm3(self):
        self.compare("smollm3")

    def test_olmo2(self):
        self.compare("olmo2")


if __name__ == "__main__":
    unittest.main()
