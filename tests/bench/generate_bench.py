#!/usr/bin/env python3
"""Tokens per second of `muster-trainer generate`, beside transformers' generate.

  tests/bench/generate_bench.py [--presets tiny small] [--types float32 bfloat16] [--tokens 300] [--batch 16]

One thread each, greedy, the same random weights, the fastest of three runs; the time to the first
token does not count. JSON with a description of the machine; `agreeing` is how many of the tokens at
the beginning are equal. `share_of_memory` is the bytes of the weights times the tokens per second, by
what one thread reads from memory (read_bench, in the same run). `batch` has the tokens per second of so
many prompts at once, and how many times those of one that is.
"""

import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import machine  # noqa: E402
import peer  # noqa: E402
from cluster import BIN  # noqa: E402

LIMIT_S = 600
PROMPT = "Hello"
TOKENS = 259  # of the tokenizer that init-model writes


def last_line(command):
    done = subprocess.run(list(map(str, command)), timeout=LIMIT_S, capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout.splitlines()[-1])


def clear_padding(path):
    """Zeros for the head's rows without a token, which transformers would draw and we would not."""
    with open(path, "r+b") as file:
        size, = struct.unpack("<Q", file.read(8))
        head = json.loads(file.read(size))["lm_head.weight"]
        begin, end = head["data_offsets"]
        skipped = TOKENS * (end - begin) // head["shape"][0]
        file.seek(8 + size + begin + skipped)
        file.write(bytes(end - begin - skipped))


def make_model(preset, folder):
    """Random weights that no token ends: both sides make as many as they are asked for."""
    subprocess.run([BIN / "muster-trainer", "init-model", "--preset", preset, "--out", folder],
                   check=True, capture_output=True, timeout=LIMIT_S)
    for name in ("config.json", "generation_config.json"):
        path = pathlib.Path(folder) / name
        config = json.loads(path.read_text())
        config.pop("eos_token_id")
        path.write_text(json.dumps(config))
    clear_padding(pathlib.Path(folder) / "model.safetensors")


def in_a_batch(model, kind, options):
    """Tokens per second of all, while all of them run."""
    prompts = pathlib.Path(model) / "prompts.jsonl"
    prompts.write_text((json.dumps({"prompt": PROMPT}) + "\n") * options.batch, encoding="utf-8")
    best = 0
    for _ in range(options.repetitions):
        done = subprocess.run(list(map(str, [
            BIN / "muster-trainer", "generate", "--model", model, "--prompts", prompts, "--batch", options.batch,
            "--max-new-tokens", options.tokens, "--threads", 1, "--dtype", kind])), timeout=LIMIT_S,
            capture_output=True, text=True, check=True)
        texts = [json.loads(line) for line in done.stdout.splitlines()]
        # The last prompt's first token is drawn when all have theirs.
        best = max(best, sum(text["new_tokens"] - 1 for text in texts) / texts[-1]["seconds"])
    return best


def weight_bytes(model, kind):
    """Of the matrices that a token passes through; of the embedding it reads one row."""
    with open(pathlib.Path(model) / "model.safetensors", "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        head = json.loads(file.read(size))
    counts = (math.prod(entry["shape"]) for name, entry in head.items()
              if name not in ("__metadata__", "model.embed_tokens.weight"))
    return sum(counts) * {"float32": 4, "bfloat16": 2}[kind]


def compare(preset, kind, options):
    with tempfile.TemporaryDirectory(prefix="muster-generate-bench-") as model:
        make_model(preset, model)
        ours = max((last_line([BIN / "muster-trainer", "generate", "--model", model, "--prompt", PROMPT,
                               "--max-new-tokens", options.tokens, "--threads", 1, "--dtype", kind,
                               "--json"]) for _ in range(options.repetitions)),
                   key=lambda run: run["tokens_per_second"])
        batch = in_a_batch(model, kind, options)
        memory = last_line([BIN / "read_bench"])["gb_per_s"]
        weights = weight_bytes(model, kind)
        theirs = last_line([peer.PYTHON, HERE / "peers" / "transformers_generate.py", "--model", model,
                            "--type", kind, "--prompt", PROMPT, "--tokens", options.tokens,
                            "--repetitions", options.repetitions])
    differs = (i for i, pair in enumerate(zip(ours["ids"], theirs["ids"])) if pair[0] != pair[1])
    return {"preset": preset, "type": kind, "tokens": ours["new_tokens"],
            "agreeing": next(differs, len(ours["ids"])),
            "tokens_per_s": round(ours["tokens_per_second"], 1), "memory_gb_per_s": memory,
            "share_of_memory": round(weights * ours["tokens_per_second"] / memory / 1e9, 3),
            "batch": {"prompts": options.batch, "tokens_per_s": round(batch, 1),
                      "times_one": round(batch / ours["tokens_per_second"], 2)},
            "tokens_per_s_of_peer": round(theirs["tokens_per_second"], 1),
            "ratio": round(ours["tokens_per_second"] / theirs["tokens_per_second"], 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--presets", nargs="+", default=["tiny", "small"])
    parser.add_argument("--types", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    peer.require()
    results = [compare(preset, kind, options) for preset in options.presets for kind in options.types]
    print(json.dumps({"benchmark": "generate", "machine": machine.describe(), "models": results},
                     indent=2))


if __name__ == "__main__":
    main()
