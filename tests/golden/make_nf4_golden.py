#!/usr/bin/env python3
"""Makes files of values and of what bitsandbytes quantises them to (trainer/ops/testing/nf4_testing.h has
the format), with the Python that deploy/install-deps --peer installs:

    PYTHON tests/golden/make_nf4_golden.py trainer/ops/testdata/nf4
    PYTHON tests/golden/make_nf4_golden.py --random 4000000 --seed 1 FOLDER
"""
import argparse
import os
import pathlib
import struct

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # or tensors of odd sizes are read by code compiled for them
import torch  # noqa: E402
from bitsandbytes import functional  # noqa: E402

BLOCK = 64
NESTED = 256
NF4_LEVELS = functional.get_4bit_type("nf4", device="cpu")


def normal(count, seed, size=0.02):
    return torch.randn(count, generator=torch.Generator().manual_seed(seed)) * size


def ties():
    """Halfway between neighbouring levels, and the singles beside, in blocks whose absmax is 1."""
    middles = (NF4_LEVELS[:-1] + NF4_LEVELS[1:]) / 2
    up, down = torch.full_like(middles, 2), torch.full_like(middles, -2)
    row = torch.cat([torch.ones(1), middles, torch.nextafter(middles, up),
                     torch.nextafter(middles, down), torch.zeros(18)])
    return torch.cat([row, row * 0.1, row * 3.7, row * 1e-30])


def edges():
    """Zeros, subnormal and huge numbers, and what is no number, each in a block of its own."""
    nan, infinity = float("nan"), float("inf")
    blocks = [torch.zeros(BLOCK), torch.full((BLOCK,), -0.0), normal(BLOCK, 1, 1e-40),
              normal(BLOCK, 2, 1e-38), normal(BLOCK, 3, 1e37), torch.full((BLOCK,), 3.4e38),
              -torch.arange(BLOCK, dtype=torch.float32)]
    finite = torch.cat(blocks)
    spoilt = torch.cat([normal(BLOCK, 4), normal(BLOCK, 5), normal(BLOCK, 6)])
    spoilt[3], spoilt[70] = nan, infinity
    return finite, spoilt


def nested_places():
    """Blocks whose absmax lies, less the mean, where the code of double quantisation changes."""
    book = functional.create_dynamic_map()
    middles = (book[:-1] + book[1:]) / 2
    absmax = torch.cat([middles, middles + 1e-7, middles - 1e-7, torch.tensor([1.0, -1.0])]) + 1.25
    return torch.cat([absmax.view(-1, 1), torch.zeros(len(absmax), BLOCK - 1)], 1).flatten()


def golden_cases():
    finite, spoilt = edges()
    yield "one", normal(1, 11)
    yield "short", normal(BLOCK - 1, 12)
    yield "block_and_one", normal(BLOCK + 1, 13)
    yield "rest", normal(1000, 14)
    yield "zero_rest", torch.cat([normal(BLOCK, 15), torch.zeros(5)])
    yield "subnormal_rest", normal(7, 16, 1e-41)
    yield "ties", ties()
    yield "edges", finite
    yield "no_numbers", spoilt
    yield "nested", normal(BLOCK * NESTED + 100, 17).to(torch.bfloat16).float()


def random_cases(count, seed):
    yield "normal", normal(count, seed)
    yield "bfloat16", normal(count, seed + 1).to(torch.bfloat16).float()
    yield "float16", normal(count + 1, seed + 2, 1.0).to(torch.float16).float()
    scales = torch.exp(normal(count // BLOCK, seed + 3, 3.0)).repeat_interleave(BLOCK)
    yield "uneven", normal(count // BLOCK * BLOCK, seed + 4, 1.0) * scales
    yield "uniform", torch.rand(count - 17, generator=torch.Generator().manual_seed(seed + 5)) - 0.5
    yield "nested_places", nested_places()


def contents(values):
    codes, state = functional.quantize_4bit(values, blocksize=BLOCK, quant_type="nf4")
    twice, nested = functional.quantize_4bit(values, blocksize=BLOCK, quant_type="nf4",
                                             compress_statistics=True)
    assert torch.equal(codes, twice)
    read = functional.dequantize_4bit(twice, nested)
    parts = [values, codes.flatten(), state.absmax, nested.offset.view(1), nested.absmax,
             nested.state2.absmax, nested.state2.code, read.flatten()]
    return struct.pack("<q", values.numel()) + b"".join(p.numpy().tobytes() for p in parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--random", type=int, help="values of each case; without it the golden ones")
    parser.add_argument("--seed", type=int, default=21, help="of --random")
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the mean's bits depend on it
    arguments.folder.mkdir(parents=True, exist_ok=True)
    cases = random_cases(arguments.random, arguments.seed) if arguments.random else golden_cases()
    for name, values in cases:
        (arguments.folder / f"{name}.nf4").write_bytes(contents(values))


if __name__ == "__main__":
    main()
