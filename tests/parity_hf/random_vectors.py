"""Gives the vectors of a model (norms and biases) random values, in place.

  python random_vectors.py DIR [SEED]

`muster-trainer init-model` leaves them at one and at zero, where most mistakes do not show.
"""

import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file


def main():
    path = pathlib.Path(sys.argv[1]) / "model.safetensors"
    torch.manual_seed(int(sys.argv[2]) if len(sys.argv) > 2 else 5)
    tensors = load_file(path)
    for name, values in sorted(tensors.items()):
        if values.dim() == 1 or name.endswith("_bias"):  # those of all experts are one tensor
            # What is added to the stream itself would drown the tokens in it.
            scale = 0.02 if name.endswith(("_bias", "o_proj.bias")) else 0.2
            tensors[name] = values + scale * torch.randn_like(values)
    save_file(tensors, path, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
