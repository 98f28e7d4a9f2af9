#!/usr/bin/env python3
"""Makes tests/parity/testdata/trajectories.json: losses and gradient norms of 20 steps of transformers in fp64, and how far
its own fp32 curves stray from them, with the Python that deploy/install-deps --peer installs:

    PYTHON tests/golden/make_trajectory_golden.py tests/parity/testdata/trajectories.json

Weights and batches are functions of integers alone (tests/parity/trajectory_test.cc has them too). A document is a
forward pass of its own, whatever it is packed with, and knows nothing of longer ones before it.
"""
import json
import pathlib
import sys
import tempfile

import numpy
import torch
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "parity_hf"))
from widened import routers_of, widen  # noqa: E402

STEPS, MICRO_BATCHES, ROW, RATE = 20, 6, 24, 3e-4
# Documents of the rows, which take turns.
DOCUMENTS = ((24,), (5, 19), (9, 8, 7), (17, 7), (2, 22))
SHAPE = {"hidden_size": 36, "intermediate_size": 52, "num_hidden_layers": 2, "num_attention_heads": 6,
         "num_key_value_heads": 2, "vocab_size": 67, "max_position_embeddings": 16, "rms_norm_eps": 1e-5,
         "rope_theta": 100.0, "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": None,
         "pad_token_id": None}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": 10}
PHI3 = {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}
GEMMA = {"head_dim": 10, "query_pre_attn_scalar": 20, "tie_word_embeddings": True,
         "hidden_activation": "gelu_pytorch_tanh"}
LONG = {"rope_type": "longrope", "original_max_position_embeddings": 8}
CASES = {
    "linear": {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 3.0}},
    "dynamic": {**LLAMA, "rope_scaling": {"rope_type": "dynamic", "factor": 2.5}},
    "yarn": {**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}},
    "longrope": {**LLAMA, "rope_scaling": {**LONG, "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0],
                                           "long_factor": [1.0, 2.0, 4.0, 7.0, 9.5]}},
    "granite": {"architectures": ["GraniteForCausalLM"], "model_type": "granite", "head_dim": 10,
                "embedding_multiplier": 12.0, "attention_multiplier": 0.0625, "residual_multiplier": 0.22,
                "logits_scaling": 6.0},
    "phi3": {**PHI3, "head_dim": 10, "partial_rotary_factor": 0.75, "sliding_window": 7},
    "phi3 longrope": {**PHI3, "hidden_size": 48, "partial_rotary_factor": 0.75, "tie_word_embeddings": True,
                      "original_max_position_embeddings": 8,
                      "rope_scaling": {**LONG, "short_factor": [1.0, 1.2, 1.9], "long_factor": [1.0, 3.0, 7.0]}},
    "gemma2": {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", **GEMMA, "sliding_window": 5,
               "attn_logit_softcapping": 1.0, "final_logit_softcapping": 2.0},
    "gemma3": {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", **GEMMA, "sliding_window": 1,
               "sliding_window_pattern": 2, "rope_local_base_freq": 20.0,
               "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "qwen3_moe": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": 10, "num_experts": 5,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 20, "norm_topk_prob": True,
                  "mlp_only_layers": [1], "num_hidden_layers": 3},
    "qwen2_moe": {"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "num_experts": 4,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 28,
                  "mlp_only_layers": [0], "num_hidden_layers": 3},
    "olmoe": {"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "num_experts": 4, "num_experts_per_tok": 4},
    "mixtral": {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "head_dim": 10,
                "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 9},
    "gpt_oss": {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "head_dim": 10, "num_local_experts": 4,
                "num_experts_per_tok": 2, "sliding_window": 5, "swiglu_limit": 1.1, "attention_bias": True,
                "dtype": "float32", "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": False,
                                                     "original_max_position_embeddings": 8}},
}


def mixed(values):
    """A hash of 32 bits."""
    x = values.astype(numpy.uint64)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    return x ^ (x >> 16)


def weight_of(name, shape):
    """Exact in fp32."""
    begin = sum(ord(letter) * (i + 1) for i, letter in enumerate(name)) * 65536
    count = int(numpy.prod(shape))
    values = (mixed(numpy.arange(begin, begin + count) & 0xFFFFFFFF) >> 16) / 65536 - 0.5
    return torch.from_numpy(values.reshape(shape) * 0.5 + (len(shape) == 1))


def experts_of(name, shape, family):
    """A parameter of all experts, of what files have: in a gpt-oss one tensor, which is cut here, else some for each."""
    count, rows, columns = shape[0], *(shape[1:] if len(shape) == 3 else (shape[1], None))
    if family == "gpt_oss":
        parts = [weight_of(f"{name}.{e}", (columns, rows) if columns else (rows,)) for e in range(count)]
        return torch.stack([part.t() if columns else part for part in parts])
    stem, words = name.rsplit(".", 1)[0], {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}
    if family == "mixtral":
        stem = stem.replace("mlp", "block_sparse_moe")
        words = {"gate_up_proj": ("w1", "w3"), "down_proj": ("w2",)}
    own = words[name.rsplit(".", 1)[1]]
    return torch.stack([torch.cat([weight_of(f"{stem}.{e}.{word}.weight", (rows // len(own), columns)) for word in own])
                        for e in range(count)])


def parameter_of(name, shape, family):
    if ".mlp.experts." in name:
        return experts_of(name, shape, family)
    return weight_of(name.replace("mlp.gate", "block_sparse_moe.gate") if family == "mixtral" else name, shape)


def documents_of(step, micro, vocabulary):
    """Two rows' documents."""
    for row in range(2):
        at = 0
        for length in DOCUMENTS[(step + 2 * micro + row) % len(DOCUMENTS)]:
            begin = ((step * MICRO_BATCHES + micro) * 2 + row) * ROW + at
            yield mixed(numpy.arange(begin, begin + length)) % vocabulary
            at += length


def forget(model):
    """What a dynamic embedding remembers of longer documents."""
    embedding = model.model.rotary_emb
    if getattr(embedding, "rope_type", None) != "dynamic":  # a Gemma 3 has one for each kind of layer
        return
    embedding.max_seq_len_cached = embedding.original_max_seq_len
    embedding.inv_freq = embedding.original_inv_freq


def train(config, dtype):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        parsed = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(parsed).to(dtype)
    if routers_of(model):
        model.set_experts_implementation("eager")
    widened = widen(model) if dtype == torch.float64 else None
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.copy_(parameter_of(name, values.shape, config["model_type"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses, norms = [], []
    for step in range(STEPS):
        loss, labels = 0, 0
        for micro in range(MICRO_BATCHES):
            for document in documents_of(step, micro, parsed.vocab_size):
                ids = torch.from_numpy(document.astype("int64"))[None]
                forget(model)
                logits = model(input_ids=ids, use_cache=False).logits
                loss = loss + torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="sum")
                labels += ids.shape[1] - 1
        loss = loss / labels
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf")).item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if widened:
        widened.check_used()
    return {"losses": losses, "grad_norms": norms}


def main():
    torch.set_num_threads(1)
    cases = []
    for name, config in CASES.items():
        full = {**SHAPE, **config}
        curves, in_fp32 = (train(json.loads(json.dumps(full)), dtype) for dtype in (torch.float64, torch.float32))
        strays = {which: max(abs(a - b) / b for a, b in zip(in_fp32[which], curves[which])) for which in curves}
        cases.append(json.dumps({"name": name, "config": full, **curves, "strays_in_fp32": strays}))
        print(name, file=sys.stderr)
    lines = ",\n".join(cases)
    pathlib.Path(sys.argv[1]).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
