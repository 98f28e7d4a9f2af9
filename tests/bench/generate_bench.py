#!/usr/bin/env python3
"""Tokens per second of `muster-trainer generate`, beside transformers' generate.

  tests/bench/generate_bench.py [--presets tiny small] [--types float32 bfloat16] [--tokens 300]

One thread each, greedy, the same random weights, the fastest of three runs; the time to the first
token does not count. JSON with a description of the machine; `agreeing` is how many of the tokens at
the beginning are equal.
"""

import argparse
import json
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


def compare(preset, kind, options):
    with tempfile.TemporaryDirectory(prefix="muster-generate-bench-") as model:
        make_model(preset, model)
        ours = max((last_line([BIN / "muster-trainer", "generate", "--model", model, "--prompt", PROMPT,
                               "--max-new-tokens", options.tokens, "--threads", 1, "--dtype", kind,
                               "--json"]) for _ in range(options.repetitions)),
                   key=lambda run: run["tokens_per_second"])
        theirs = last_line([peer.PYTHON, HERE / "peers" / "transformers_generate.py", "--model", model,
                            "--type", kind, "--prompt", PROMPT, "--tokens", options.tokens,
                            "--repetitions", options.repetitions])
    differs = (i for i, pair in enumerate(zip(ours["ids"], theirs["ids"])) if pair[0] != pair[1])
    return {"preset": preset, "type": kind, "tokens": ours["new_tokens"],
            "agreeing": next(differs, len(ours["ids"])),
            "tokens_per_s": round(ours["tokens_per_second"], 1),
            "tokens_per_s_of_peer": round(theirs["tokens_per_second"], 1),
            "ratio": round(ours["tokens_per_second"] / theirs["tokens_per_second"], 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--presets", nargs="+", default=["tiny", "small"])
    parser.add_argument("--types", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    peer.require()
    results = [compare(preset, kind, options) for preset in options.presets for kind in options.types]
    print(json.dumps({"benchmark": "generate", "machine": machine.describe(), "models": results},
                     indent=2))


if __name__ == "__main__":
    main()
