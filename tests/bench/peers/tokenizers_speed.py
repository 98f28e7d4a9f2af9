"""The package `tokenizers` on the text and in the parts of tokenizer_bench.cc; trains what both use.

  python tokenizers_speed.py --kind KIND --text FILE --model DIR --repetitions N

Writes DIR/tokenizer.json, then prints {"bytes", "rows", "document"}. One thread: the caller sets
RAYON_NUM_THREADS=1.
"""

import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "golden"))
import tokenizer_kinds  # noqa: E402

ROW_BYTES = 4096
VOCAB = 8000


def measure(tokenizer, parts, size, repetitions):
    least, tokens = float("inf"), 0
    for _ in range(repetitions):
        begin = time.process_time()
        tokens = sum(len(tokenizer.encode(part, add_special_tokens=False).ids) for part in parts)
        least = min(least, time.process_time() - begin)
    return {"tokens": tokens, "mb_per_s": size * 1e-6 / least}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--kind", "--text", "--model"):
        parser.add_argument(name, required=True)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    data = pathlib.Path(options.text).read_bytes()
    text = data.decode("ascii")  # so that parts of bytes are parts of text
    tokenizer = tokenizer_kinds.make(options.kind, text.splitlines(keepends=True), VOCAB)
    tokenizer.save(str(pathlib.Path(options.model) / "tokenizer.json"))
    rows = [text[at:at + ROW_BYTES] for at in range(0, len(text), ROW_BYTES)]
    print(json.dumps({
        "bytes": len(data),
        "rows": measure(tokenizer, rows, len(data), options.repetitions),
        "document": measure(tokenizer, [text], len(data), options.repetitions)}))


if __name__ == "__main__":
    main()
