#!/usr/bin/env python3
"""Makes what the packages `tokenizers`, `sentencepiece` and `safetensors` give on small inputs.

    python3 -m venv venv && venv/bin/pip install tokenizers sentencepiece safetensors numpy
    venv/bin/python tests/golden/make_tokenizer_golden.py TEXT

TEXT is any plain English text of about a megabyte to train small tokenizers on (made with Tiny
Shakespeare, public domain, of the repository karpathy/char-rnn). Writes for each kind of tokenizer
KIND.tokenizer.json and KIND.golden.jsonl, whose rows are {"text", "ids", "special_ids", "decoded",
"skipped"}, or KIND.model and KIND.golden.jsonl, whose rows are {"text", "ids", "decoded"}, into
trainer/text/tokenizer/testdata, and reference.safetensors into trainer/formats/testdata.
"""
import json
import pathlib
import sys

import numpy
import safetensors.numpy

import sentencepiece_kinds
import tokenizer_kinds

TRAINER = pathlib.Path(__file__).resolve().parents[2] / "trainer"


def write_golden(file, tokenizer, texts):
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        row = {"text": text, "ids": ids, "special_ids": tokenizer.encode(text).ids,
               "decoded": tokenizer.decode(ids, skip_special_tokens=False),
               "skipped": tokenizer.decode(ids, skip_special_tokens=True)}
        file.write(json.dumps(row, separators=(",", ":")) + "\n")


def main():
    corpus = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").splitlines(keepends=True)
    out = TRAINER / "text" / "tokenizer" / "testdata"
    for number, kind in enumerate(tokenizer_kinds.KINDS):
        tokenizer = tokenizer_kinds.make(kind, corpus)
        (out / f"{kind}.tokenizer.json").write_text(
            json.dumps(json.loads(tokenizer.to_str()), separators=(",", ":")) + "\n")
        with open(out / f"{kind}.golden.jsonl", "w", encoding="utf-8") as file:
            write_golden(file, tokenizer,
                         tokenizer_kinds.texts_of(kind) + tokenizer_kinds.random_texts(number, 60))
    for number, kind in enumerate(sentencepiece_kinds.KINDS):
        model = sentencepiece_kinds.train(kind, corpus, 600)
        (out / f"{kind}.model").write_bytes(model)
        reference = sentencepiece_kinds.Reference(model)
        texts = (tokenizer_kinds.TEXTS + tokenizer_kinds.MARKED_TEXTS
                 + tokenizer_kinds.random_texts(100 + number, 60))
        with open(out / f"{kind}.golden.jsonl", "w", encoding="utf-8") as file:
            for text in reference.texts_of(texts):
                ids = reference.encode(text)
                row = {"text": text, "ids": ids, "decoded": reference.decode(ids)}
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
    safetensors.numpy.save_file(
        {"matrix": numpy.arange(6, dtype=numpy.float32).reshape(2, 3) + numpy.float32(0.5),
         "half": numpy.array([0.5, -2, 65504], dtype=numpy.float16),
         "ids": numpy.array([1, 2], dtype=numpy.int64)},
        TRAINER / "formats" / "testdata" / "reference.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
