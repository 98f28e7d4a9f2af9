#!/usr/bin/env python3
"""Makes trainer/model/testdata/rope.json: cosines and sines of transformers' rotary embeddings under every
scaling, with the Python that deploy/install-deps --peer installs:

    PYTHON tests/golden/make_rope_golden.py trainer/model/testdata/rope.json

A case has the config.json that the trainer reads, the length of a document, and the angles of some of its
positions, [position][pair].
"""
import json
import pathlib
import sys

import torch
from transformers import LlamaConfig, Phi3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

SHAPE = {"hidden_size": 36, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 3,
         "num_key_value_heads": 1, "vocab_size": 300, "max_position_embeddings": 64}
POSITIONS = (0, 1, 5, 30, 63, 64, 150)
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.05, 1.1, 1.3, 1.7, 2.0],
        "long_factor": [1.0, 1.5, 2.5, 4.0, 8.0, 11.5], "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
CASES = (
    ("default", {}, (151,)),
    ("linear", {"rope_type": "linear", "factor": 2.5}, (151,)),
    ("dynamic", {"rope_type": "dynamic", "factor": 2.2}, (10, 64, 65, 151)),
    ("yarn", YARN, (151,)),
    ("yarn that is not truncated", {**YARN, "truncate": False, "beta_fast": 4.0, "beta_slow": 0.5}, (151,)),
    ("yarn with an attention factor", {**YARN, "attention_factor": 1.3}, (151,)),
    ("yarn of DeepSeek", {**YARN, "mscale": 1.4, "mscale_all_dim": 0.7}, (151,)),
    ("longrope", LONG, (10, 32, 33, 151)),
    ("longrope with a factor", {**LONG, "factor": 8.0}, (33,)),
    ("llama3", {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32}, (151,)),
)
PARTIAL = (
    ("a part of each head", {}, 0.5, (151,)),
    ("an odd part of each head", {}, 0.75, (151,)),
    ("a part of each head under longrope", {**LONG, "short_factor": [1.0, 1.2, 1.9], "long_factor": [1.0, 3.0, 7.0]},
     0.5, (32, 33)),
)


def case(name, embedding, config, length):
    positions = [position for position in POSITIONS if position < length]
    cos, sin = embedding(torch.zeros(1), torch.arange(length)[None])
    half = cos.shape[-1] // 2
    rows = {key: table[0, positions, :half].tolist() for key, table in (("cos", cos), ("sin", sin))}
    return {"name": name, "config": config, "length": length, "positions": positions, **rows}


def main():
    cases = []
    for name, scaling, lengths in CASES:
        for length in lengths:  # an embedding remembers the longest document
            given = {**SHAPE, "rope_theta": 1000.0, **({"rope_scaling": scaling} if scaling else {})}
            embedding = LlamaRotaryEmbedding(LlamaConfig(**json.loads(json.dumps(given))))
            cases.append(case(name, embedding, {"architectures": ["LlamaForCausalLM"], **given}, length))
    for name, scaling, partial, lengths in PARTIAL:
        for length in lengths:
            given = {**SHAPE, "rope_theta": 1000.0, "partial_rotary_factor": partial,
                     "original_max_position_embeddings": 32, **({"rope_scaling": scaling} if scaling else {})}
            if partial == 0.75:
                given["head_dim"] = 10  # 7 elements: four pairs
            embedding = Phi3RotaryEmbedding(Phi3Config(pad_token_id=0, **json.loads(json.dumps(given))))
            cases.append(case(name, embedding, {"architectures": ["Phi3ForCausalLM"], **given}, length))
    lines = ",\n".join(json.dumps(each) for each in cases)
    pathlib.Path(sys.argv[1]).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
