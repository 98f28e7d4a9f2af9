"""The kinds of tokenizers that models come with, as small ones trained on any text.

Used with the Python package `tokenizers` by make_tokenizer_golden.py, which keeps what it gives, and
by tests/parity_hf/tokenizer_parity_test.py, which compares with it live.
"""
import json
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
MARK = "\u2581"

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
# And where vocabularies of characters have their corners.
MARKED_TEXTS = [
    MARK, MARK * 2, MARK + " a", "a" + MARK + "b", " " + MARK, "<s>", "</s>", "<s>Hello</s> world",
    "a <s> b</s>", "<unk>", "<s><s> ", "<0x0A>", "<0x41>B", "[INST] Hi [/INST] there</s>",
    "[INST]x[/INST]", " [INST] ", "ΣΑΣ ΟΔΥΣΣΕΥΣ İstanbul ŁÓDŹ", "“quotes” — dashes… ¿qué?",
    "a.b,c;d:e!f?g(h)i[j]k{l}m", "$5+3=8 <tag> ^x` |y| ~z", "Ⓐ 🅰 a\u200db a\u0301 क्षि", "  x  ",
    "one <mask> two  <mask>  three", "the " * 40, "<mask> lead <mask>   lead",
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


def metaspace(scheme, whole=True):
    return pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme, split=not whole)


def marked_decoder(strip=1):
    return decoders.Sequence([
        decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", strip, 0)])


PREPEND_AND_REPLACE = normalizers.Sequence(
    [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
QWEN_STEPS = pre_tokenizers.Sequence([split(QWEN2), byte_level()])

# Over an alphabet of bytes.
BYTE_KINDS = {
    "gpt2": dict(pre=byte_level(use_regex=True)),
    "gpt2_prefix": dict(pre=byte_level(add_prefix_space=True, use_regex=True)),
    "llama3": dict(pre=pre_tokenizers.Sequence([split(LLAMA3), byte_level()]), bos=True,
                   ignore_merges=True),
    "qwen2": dict(pre=QWEN_STEPS, normalizer=normalizers.NFC()),
    "smollm2": dict(pre=pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), byte_level(use_regex=True)])),
    "removed": dict(pre=pre_tokenizers.Sequence(
        [split(r"\p{L}+|\p{N}+|[^\s]", "removed", True), byte_level()]), partial=True),
    "qwen3": dict(pre=QWEN_STEPS, normalizer=normalizers.NFC(),
                  plain=["<tool_call>", "</tool_call>", "<think>", "</think>"]),
}
# Over characters, with bytes for those that are unknown (but in `steps` and `words`).
CHARACTER_KINDS = {
    "llama2": dict(normalizer=PREPEND_AND_REPLACE, decoder=marked_decoder()),
    "llama2_metaspace": dict(pre=metaspace("first"), decoder=marked_decoder()),
    "mistral": dict(pre=metaspace("first"), decoder=marked_decoder(), control=["[INST]", "[/INST]"],
                    plain=[" lead"]),
    "mistral_always": dict(pre=metaspace("always"), decoder=marked_decoder(),
                           control=["[INST]", "[/INST]"]),
    "metaspace_split": dict(pre=metaspace("always", whole=False), decoder=decoders.Metaspace(
        replacement=MARK, prepend_scheme="always")),
    "steps": dict(
        normalizer=normalizers.Sequence([
            normalizers.NFKD(), normalizers.Lowercase(), normalizers.Strip(),
            normalizers.Replace(Regex(" {2,}"), " "), normalizers.NFKC()]),
        pre=pre_tokenizers.Sequence([
            pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.Digits(), metaspace("always", whole=False),
            split("[aeiou]", "merged_with_previous"), split("[xyz]", "merged_with_next")]),
        decoder=decoders.Metaspace(replacement=MARK, prepend_scheme="never"), bytes=False),
    "words": dict(normalizer=normalizers.NFD(), pre=pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(), split("[a-m]", "contiguous", True)]),
        bytes=False, fuse=True),
}


def add_tokens(tokenizer, options):
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
                                 + options.get("control", []))
    tokenizer.add_tokens([
        AddedToken("<tool>", normalized=False), AddedToken("<tool_call>", normalized=False),
        AddedToken("<\u00f1>", normalized=True),
        AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("word", single_word=True, normalized=False)])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False)
                          for token in options.get("plain", [])])


def put_in_front(tokenizer, token):
    return processors.TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, tokenizer.token_to_id(token))])


def make_byte_kind(options, corpus, vocab_size):
    tokenizer = Tokenizer(models.BPE(ignore_merges=options.get("ignore_merges", False)))
    tokenizer.pre_tokenizer = options["pre"]
    if "normalizer" in options:
        tokenizer.normalizer = options["normalizer"]
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = [] if options.get("partial") else pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False))
    add_tokens(tokenizer, options)
    if options.get("bos"):
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False), put_in_front(tokenizer, "<|endoftext|>")])
    return tokenizer


def make_character_kind(options, corpus, vocab_size):
    """Trains on words, as SentencePiece does, whatever the tokenizer then cuts its texts into.

    The trainer would make added tokens of the bytes, so that they go into the vocabulary by hand.
    """
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = metaspace("always", whole=False)
    trained.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    with_bytes = options.get("bytes", True)
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256) if with_bytes]
    vocab = {token: number for number, token in enumerate(
        tokens + sorted(model["vocab"], key=model["vocab"].get))}
    tokenizer = Tokenizer(models.BPE(
        vocab=vocab, merges=[tuple(pair) for pair in model["merges"]], unk_token="<unk>",
        fuse_unk=with_bytes or options.get("fuse", False), byte_fallback=with_bytes))
    if "normalizer" in options:
        tokenizer.normalizer = options["normalizer"]
    if "pre" in options:
        tokenizer.pre_tokenizer = options["pre"]
    if "decoder" in options:
        tokenizer.decoder = options["decoder"]
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    add_tokens(tokenizer, options)
    tokenizer.post_processor = put_in_front(tokenizer, "<s>")
    return tokenizer


KINDS = [*BYTE_KINDS, *CHARACTER_KINDS]


def make(kind, corpus, vocab_size=700):
    if kind in BYTE_KINDS:
        return make_byte_kind(BYTE_KINDS[kind], corpus, vocab_size)
    return make_character_kind(CHARACTER_KINDS[kind], corpus, vocab_size)


def texts_of(kind):
    """The hand-made ones that a kind is tried with."""
    return TEXTS + (MARKED_TEXTS if kind in CHARACTER_KINDS else [])
