#!/usr/bin/env python3
"""Rows of text to packed rows of token ids, on two threads, beside the package `tokenizers`.

  tests/bench/rows_bench.py TEXT [--kind llama3] [--count 20000] [--length 2048] [--repetitions 3]

TEXT is a text in ASCII; rows are random parts of it. Both sides read the same .jsonl, make the same
number of tokens and pack them best fit decreasing; ours ends with a durable and checked token cache
on disk, theirs with lists of ids in memory. JSON with a description of the machine.
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

THREADS = 2
LIMIT_S = 900


def last_line(command):
    done = subprocess.run(list(map(str, command)), timeout=LIMIT_S, capture_output=True, text=True,
                          check=True, env={**os.environ, "RAYON_NUM_THREADS": str(THREADS)})
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--kind", default="llama3")
    for name, default in (("--count", 20000), ("--length", 2048), ("--repetitions", 3)):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    peer.require()
    with tempfile.TemporaryDirectory(prefix="muster-rows-bench-") as model:
        rows = pathlib.Path(model) / "rows.jsonl"
        theirs = last_line([peer.PYTHON, HERE / "peers" / "rows_speed.py", "--kind", options.kind,
                            "--text", options.text, "--model", model, "--rows", rows,
                            "--count", options.count, "--length", options.length,
                            "--repetitions", options.repetitions])
        ours = last_line([BIN / "rows_bench", model, rows, options.length, THREADS,
                          options.repetitions])
        size = rows.stat().st_size
    ratio = (theirs["tokenize_s"] + theirs["pack_s"]) / (ours["tokenize_s"] + ours["pack_s"])
    print(json.dumps({"benchmark": "rows", "machine": machine.describe(), "kind": options.kind,
                      "threads": THREADS, "bytes": size, "length": options.length,
                      "same_tokens": ours["tokens"] == theirs["tokens"], "ours": ours, "peer": theirs,
                      "ratio": round(ratio, 2)}, indent=2))


if __name__ == "__main__":
    main()
