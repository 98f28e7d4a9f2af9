"""A model directory with random weights in bf16, made on a GPU in seconds.

  python random_model.py --shape 8b --out DIR
"""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM

# Those of Llama 3.2 1B and 3B and of Llama 3.1 8B; rows need no longer positions.
_COMMON = {"vocab_size": 128256, "num_key_value_heads": 8, "max_position_embeddings": 8192,
           "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "dtype": "bfloat16"}
SHAPES = {
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
           "num_attention_heads": 32, "head_dim": 64, "tie_word_embeddings": True},
    "3b": {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28,
           "num_attention_heads": 24, "head_dim": 128, "tie_word_embeddings": True},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "num_attention_heads": 32, "head_dim": 128, "tie_word_embeddings": False},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=sorted(SHAPES), required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(LlamaConfig(**_COMMON, **SHAPES[options.shape]))
    model.save_pretrained(options.out)


if __name__ == "__main__":
    main()
