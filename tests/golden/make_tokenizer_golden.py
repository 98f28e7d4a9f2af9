#!/usr/bin/env python3
"""Makes trainer/tokenizer/testdata: what the packages `tokenizers` and `safetensors` do.

    python3 -m venv venv && venv/bin/pip install tokenizers safetensors numpy
    venv/bin/python tests/golden/make_tokenizer_golden.py TEXT trainer/tokenizer/testdata trainer/formats/testdata

TEXT is any plain English text of about a megabyte to train small tokenizers on (made with Tiny
Shakespeare, public domain, of the repository karpathy/char-rnn). Writes for each kind of tokenizer
KIND.tokenizer.json and KIND.golden.jsonl, whose rows are {"text", "ids", "special_ids", "decoded",
"skipped"}, and into the second folder reference.safetensors.
"""
import json
import pathlib
import random
import sys

import numpy
import safetensors.numpy
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

TEXTS = [
    "", " ", "  ", "\n", "\t", "a", "Hello world", " Hello  world ", "Hello, World! It's 2024.",
    "I'll we'RE they'Ve don'T he'D I'M", "can't 'twas ''s 'S", "12345678901234567890 3.14159",
    "line one\nline two\n\n\nline three\r\nline four\r\r\n", "trailing   ", "   leading",
    "tabs\t\tand \t mixed \n \n space", "a\u00a0b\u2003c\u3000d\u180ee\u2028f\u0085g\u200bh",
    "naïve café résumé", "cafe\u0301 e\u0301\u0323 \u1e9b\u0323", "Ａｂｃ １２３ ﬁ ½ ² Ⅷ ①",
    "日本語のテキスト、漢字とかな。", "中文字符测试", "한국어 텍스트", "العربية ١٢٣ नमस्ते देवनागरी",
    "emoji 😀😃 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽!", "mixed😀text漢字123abc", "\u0000\u0001\u001f\u007f",
    "\ufeffbom", "\U0010ffff\ue000\ufffd", "ſharp 'ſ Kelvin K", "a" * 300, "ab" * 100, " " * 50,
    "\n" * 20, "!!!???...", "foo_bar-baz/qux", "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n",
    "a<|endoftext|>b", "<|endoftext|><|endoftext|>", "<|endof", "<|im_start|", "x <|im_end|> y",
    "<tool>call</tool>", "<tool><tool_call>nested", "maskmask <mask> mask   <mask>   x",
    "word wordy sword word", "ﬁn fin", "def f(x):\n    return x**2  # comment\n",
    "ROMEO:\nO, she doth teach the torches to burn bright!\n", "e\u0301tude <n\u0303> <\u00f1>",
]


def random_texts(seed, count):
    rng = random.Random(seed)
    ranges = [(0x20, 0x7e)] * 6 + [(0x9, 0xd), (0xa0, 0x17f), (0x300, 0x36f), (0x370, 0x5ff),
              (0x900, 0x97f), (0x2000, 0x206f), (0x3040, 0x30ff), (0x4e00, 0x9fff),
              (0x1f600, 0x1f64f)]
    def char():
        low, high = rng.choice(ranges)
        return chr(rng.randint(low, high))
    return ["".join(char() for _ in range(rng.randint(1, 40))) for _ in range(count)]


def byte_level(add_prefix_space=False, use_regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


KINDS = {
    "gpt2": dict(pre=byte_level(use_regex=True)),
    "gpt2_prefix": dict(pre=byte_level(add_prefix_space=True, use_regex=True)),
    "llama3": dict(pre=pre_tokenizers.Sequence([split(LLAMA3), byte_level()]), bos=True,
                   ignore_merges=True),
    "qwen2": dict(pre=pre_tokenizers.Sequence([split(QWEN2), byte_level()]),
                  normalizer=normalizers.NFC()),
    "smollm2": dict(pre=pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), byte_level(use_regex=True)])),
    "removed": dict(pre=pre_tokenizers.Sequence(
        [split(r"\p{L}+|\p{N}+|[^\s]", "removed", True), byte_level()]), partial=True),
}


def make(kind, corpus):
    options = KINDS[kind]
    tokenizer = Tokenizer(models.BPE(ignore_merges=options.get("ignore_merges", False)))
    tokenizer.pre_tokenizer = options["pre"]
    if "normalizer" in options:
        tokenizer.normalizer = options["normalizer"]
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = [] if options.get("partial") else pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([
        AddedToken("<tool>", normalized=False), AddedToken("<tool_call>", normalized=False),
        AddedToken("<\u00f1>", normalized=True),
        AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("word", single_word=True, normalized=False)])
    if options.get("bos"):
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|endoftext|> $A",
                special_tokens=[("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))])])
    return tokenizer


def main():
    corpus = pathlib.Path(sys.argv[1]).read_text().splitlines(keepends=True)
    out = pathlib.Path(sys.argv[2])
    for number, kind in enumerate(KINDS):
        tokenizer = make(kind, corpus)
        (out / f"{kind}.tokenizer.json").write_text(
            json.dumps(json.loads(tokenizer.to_str()), separators=(",", ":")) + "\n")
        with open(out / f"{kind}.golden.jsonl", "w") as file:
            for text in TEXTS + random_texts(number, 60):
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                row = {"text": text, "ids": ids, "special_ids": tokenizer.encode(text).ids,
                       "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                       "skipped": tokenizer.decode(ids, skip_special_tokens=True)}
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
    safetensors.numpy.save_file(
        {"matrix": numpy.arange(6, dtype=numpy.float32).reshape(2, 3) + numpy.float32(0.5),
         "half": numpy.array([0.5, -2, 65504], dtype=numpy.float16),
         "ids": numpy.array([1, 2], dtype=numpy.int64)},
        pathlib.Path(sys.argv[3]) / "reference.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
