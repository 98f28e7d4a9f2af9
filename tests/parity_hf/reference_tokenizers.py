"""Trains a small tokenizer of every kind and lets the Python packages encode adversarial texts.

  python reference_tokenizers.py --corpus FILE --texts COUNT --seed N --out DIR

Writes DIR/KIND/tokenizer.json, or tokenizer.model for the kinds of SentencePiece, DIR/KIND/rows.jsonl
with {"text"}, and DIR/KIND/reference.jsonl with {"ids", "decoded"}.
"""

import argparse
import functools
import json
import pathlib
import random
import sys
import unicodedata

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import sentencepiece_kinds  # noqa: E402
import tokenizer_kinds  # noqa: E402

VOCAB = 3000
# All sides have tables of Unicode, of different years. These characters are old enough, and of the
# same kind since, to be in all of them.
OLD = unicodedata.ucd_3_2_0
PIECES = [
    "\u2581", "\u2581\u2581", "<0x41>", "<0xE2>", "<unk>", "<s>", "</s>", "[INST]", "[/INST]",
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_", "<tool>", "<tool_call>", "<mask>", " lead",
    "word", "<\u00f1>", "n\u0303", "</think>", "'s", "'LL", "'Ve", "\r\n", "\n\n", "\t", "   ",
    "e\u0301", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0958", "\u2126", "\ufb01", "\u1e9b\u0323",
    "\u0345\u0301", "\u200d", "\ufe0f", "\u200b", "\u3000", "\u0085", "\u2028", "\u00a0", "\ufeff",
    "\U0001f469\u200d\U0001f680", "\U0001f1e9\U0001f1ea", "\u0130", "\u03a3", "\u1e9e", "\u00bd",
    "\u0661\u0662", "\u2167", "\u4e00\u4e8c", "\u0e01\u0e33", "\x00", "\x7f", "\ufffd", "\U0010ffff",
    "<start_of_turn>", "<end_of_turn>\n", "<h1>", "</table>", "\n\n\n", "\u2581\u2581\u2581", "<|start|>",
    "<|channel|>", "<|call|>", "<|return|>", "<|end|>", "<|user|>\n", " <|im_sep|> ", "|||IP_ADDRESS|||",
    "I'LLgo", "camelCase", "ABCdef'S", "\u01c5", "\u02b0", "//\n", "123456", " \n \n",
]


@functools.lru_cache
def known_characters():
    return [chr(c) for c in range(0x110000)
            if OLD.category(chr(c)) not in ("Cn", "Co", "Cs")
            and OLD.category(chr(c)) == unicodedata.category(chr(c))]


def adversarial_texts(seed, count, words):
    source = random.Random(seed)
    characters = known_characters()
    ascii_range = [chr(c) for c in range(0x20, 0x7f)]

    def part():
        kind = source.randrange(8)
        if kind == 0:
            return source.choice(PIECES)
        if kind == 1:
            return "".join(source.choice(characters) for _ in range(source.randrange(1, 8)))
        if kind == 2:
            return "".join(source.choice(ascii_range) for _ in range(source.randrange(1, 12)))
        if kind == 3:
            return source.choice(PIECES + ascii_range) * source.randrange(1, 20)
        if kind == 4:
            base = source.choice(characters)
            return base + "".join(chr(source.randrange(0x300, 0x345)) for _ in range(3))
        if kind == 5:
            return " " * source.randrange(1, 5)
        word = source.choice(words)
        return source.choice(("", " ")) + (word.upper() if kind == 6 else word)

    return ["".join(part() for _ in range(source.randrange(1, 12))) for _ in range(count)]


def write_rows(folder, texts, encode, decode):
    with open(folder / "rows.jsonl", "w", encoding="utf-8") as rows, \
            open(folder / "reference.jsonl", "w", encoding="utf-8") as reference:
        for text in texts:
            ids = encode(text)
            rows.write(json.dumps({"text": text}) + "\n")
            reference.write(json.dumps({"ids": ids, "decoded": decode(ids)}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--texts", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    lines = pathlib.Path(options.corpus).read_text(encoding="utf-8").splitlines(keepends=True)
    words = sorted({word for line in lines for word in line.split()})
    for number, kind in enumerate(tokenizer_kinds.KINDS):
        folder = pathlib.Path(options.out) / kind
        folder.mkdir()
        tokenizer = tokenizer_kinds.make(kind, lines, VOCAB)
        tokenizer.save(str(folder / "tokenizer.json"))
        write_rows(folder, adversarial_texts(f"{options.seed} {number}", options.texts, words),
                   lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
                   lambda ids: tokenizer.decode(ids, skip_special_tokens=False))
    for number, kind in enumerate(sentencepiece_kinds.KINDS):
        folder = pathlib.Path(options.out) / kind
        folder.mkdir()
        model = sentencepiece_kinds.train(kind, lines, VOCAB)
        (folder / "tokenizer.model").write_bytes(model)
        reference = sentencepiece_kinds.Reference(model)
        texts = adversarial_texts(f"{options.seed} {100 + number}", options.texts, words)
        write_rows(folder, reference.texts_of(texts), reference.encode, reference.decode)


if __name__ == "__main__":
    main()
