#!/usr/bin/env python3
"""Megabytes of text per second that one thread makes into token ids, beside the package `tokenizers`.

  tests/bench/tokenizer_bench.py TEXT [--kinds llama3 llama2 ...] [--repetitions 5]

TEXT is a text in ASCII, on which the small tokenizers of both sides are trained as well. Both make
the same ids; the number of tokens in the result shows it. JSON with a description of the machine.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import machine  # noqa: E402
import peer  # noqa: E402
from cluster import BIN  # noqa: E402

KINDS = ("gpt2", "llama3", "qwen2", "smollm2", "llama2", "mistral")
LIMIT_S = 600


def last_line(command):
    done = subprocess.run(list(map(str, command)), timeout=LIMIT_S, capture_output=True, text=True,
                          check=True, env={**os.environ, "RAYON_NUM_THREADS": "1"})
    return json.loads(done.stdout.splitlines()[-1])


def compare(kind, text, repetitions):
    with tempfile.TemporaryDirectory(prefix="muster-tokenizer-bench-") as model:
        theirs = last_line([peer.PYTHON, HERE / "peers" / "tokenizers_speed.py", "--kind", kind,
                            "--text", text, "--model", model, "--repetitions", repetitions])
        ours = last_line([BIN / "tokenizer_bench", model, text, repetitions])
    return {"kind": kind, "bytes": ours["bytes"], **{
        part: {"tokens": ours[part]["tokens"], "tokens_of_peer": theirs[part]["tokens"],
               "mb_per_s": round(ours[part]["mb_per_s"], 2),
               "mb_per_s_of_peer": round(theirs[part]["mb_per_s"], 2),
               "ratio": round(ours[part]["mb_per_s"] / theirs[part]["mb_per_s"], 2)}
        for part in ("rows", "document")}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    peer.require()
    results = [compare(kind, options.text.resolve(), options.repetitions) for kind in options.kinds]
    print(json.dumps({"benchmark": "tokenizer", "machine": machine.describe(), "kinds": results},
                     indent=2))


if __name__ == "__main__":
    main()
