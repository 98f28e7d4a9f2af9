"""The package `tokenizers` on the rows of rows_bench.cc; trains the tokenizer that both use.

  python rows_speed.py --kind KIND --text FILE --model DIR --rows OUT --count N --length L
                       --repetitions N

Writes DIR/tokenizer.json and OUT, N rows of 100 to 4,000 bytes of the text, then prints {"documents",
"tokens", "packed_rows", "padding", "tokenize_s", "pack_s"}: rows are read and encoded in batches of
1,000, on as many threads as RAYON_NUM_THREADS says, the ids kept in memory, and lengths then packed
best fit decreasing, all of them at once.
"""

import argparse
import bisect
import json
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "golden"))
import tokenizer_kinds  # noqa: E402

VOCAB = 8000
BATCH = 1000


def write_rows(path, text, count):
    rng = random.Random(7)
    with open(path, "w", encoding="ascii") as out:
        for _ in range(count):
            length = int(100 * 40 ** rng.random())  # short ones are the most
            begin = rng.randrange(len(text) - length)
            out.write(json.dumps({"text": text[begin:begin + length]}) + "\n")


def tokenize(tokenizer, path, length):
    documents, batch = [], []

    def flush():
        for encoding in tokenizer.encode_batch(batch, add_special_tokens=True):
            ids = encoding.ids
            documents.extend(ids[at:at + length] for at in range(0, len(ids), length))
        batch.clear()

    with open(path, encoding="ascii") as rows:
        for row in rows:
            batch.append(json.loads(row)["text"])
            if len(batch) == BATCH:
                flush()
    flush()
    return documents


def pack(lengths, room_of_pack):
    """How many packs there are. Open packs are told apart by their room alone."""
    rooms, packs = [], 0  # ascending
    for length in sorted(lengths, reverse=True):
        at = bisect.bisect_left(rooms, length)
        if at == len(rooms):
            packs += 1
            room = room_of_pack
        else:
            room = rooms.pop(at)
        if room > length:
            bisect.insort(rooms, room - length)
    return packs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--kind", "--text", "--model", "--rows"):
        parser.add_argument(name, required=True)
    for name in ("--count", "--length", "--repetitions"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args()
    text = pathlib.Path(options.text).read_text(encoding="ascii")
    tokenizer = tokenizer_kinds.make(options.kind, text.splitlines(keepends=True), VOCAB)
    tokenizer.save(str(pathlib.Path(options.model) / "tokenizer.json"))
    write_rows(options.rows, text, options.count)
    tokenize_s = pack_s = float("inf")
    for _ in range(options.repetitions):
        begin = time.perf_counter()
        documents = tokenize(tokenizer, options.rows, options.length)
        tokenized = time.perf_counter()
        packs = pack([len(ids) for ids in documents if len(ids) > 1], options.length)
        pack_s = min(pack_s, time.perf_counter() - tokenized)
        tokenize_s = min(tokenize_s, tokenized - begin)
    kept = [len(ids) for ids in documents if len(ids) > 1]
    print(json.dumps({"documents": len(kept), "tokens": sum(kept), "packed_rows": packs,
                      "padding": 1 - sum(kept) / (packs * options.length),
                      "tokenize_s": tokenize_s, "pack_s": pack_s}))


if __name__ == "__main__":
    main()
