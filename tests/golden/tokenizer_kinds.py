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
# Words by the case of their letters, with the contraction behind them.
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?" + letters + r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?" for letters in (
        r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
        r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*")
] + [r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
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
# Where the kinds of OTHER_FAMILIES have theirs.
FAMILY_TEXTS = [
    "<start_of_turn>user\nHi  there<end_of_turn>\n<start_of_turn>model\n", "<h1>T</h1>\n\n\n<table>",
    "\n" * 31, "\n" * 40 + "x", MARK * 31, MARK * 33 + "y", " " * 31 + "z", "\t\tif x:\n\t\t\ty", "\t",
    "<|start|>assistant<|channel|>analysis<|message|>Why?<|end|><|start|>assistant<|return|>",
    "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
    "<|system|>\nBe brief.<|end|>\n<|user|>\n  Hi<|end|>\n<|assistant|>\n", "</s>  a </s>\n b",
    "<|im_start|> user <|im_sep|>\n\n Hi <|im_end|>  \t<|im_start|>", "<|end|> \u3000\u00a0\u200bx",
    "|||IP_ADDRESS||| and|||IP_ADDRESS|||", "a" + " " * 24 + "b" + " " * 25 + "c" + " " * 49 + "d",
    "HelloWorld camelCASEWord ABCdef I'LLgo DON'Tx it'Sa", "\u01c5ungla \u02b0a \u01c5\u0301B x\u02b0Y",
    "e\u0301\u0323E\u0301x \u0301'\u0301s", "http://a.b/c//d/\n/e", "!!\n/\r\n//x", "1234567 1\u06622\u216734",
    "\u4e2d\u6587ABC\u4e2dabc \u0e01\u0e33\u0e01 \u0915\u094d\u0937\u093f'S", " \n \n\t \r\n  x \n",
]
HTML = [f"<{slash}{name}>" for name in ("table", "td", "h1", "code") for slash in ("", "/")]


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
    # OLMoE; normalized are runs of blanks.
    "gpt_neox": dict(pre=byte_level(use_regex=True), normalizer=normalizers.NFC(),
                     plain=["|||IP_ADDRESS|||"],
                     normalized=[" " * count for count in range(24, 1, -1)]),
    # gpt-oss and Phi-4-mini.
    "o200k": dict(pre=pre_tokenizers.Sequence([split(O200K), byte_level()]), ignore_merges=True,
                  every_cut=True, control=["<|start|>", "<|message|>", "<|channel|>", "<|constrain|>",
                                           "<|return|>", "<|call|>", "<|end|>"]),
    # Phi-4: what the pattern leaves over is taken away, and nothing is left over.
    "phi4": dict(pre=pre_tokenizers.Sequence([split(LLAMA3, "removed", True), byte_level()]),
                 strips={"lstrip": True, "rstrip": True},
                 stripping=["<|im_start|>", "<|im_sep|>", "<|im_end|>"]),
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
    # Gemma 1 to 3; the tab has the id of its byte.
    "gemma": dict(normalizer=normalizers.Replace(" ", MARK),
                  pre=pre_tokenizers.Split(" ", "merged_with_previous"),
                  decoder=decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(),
                                             decoders.Fuse()]),
                  every_cut=True, tab=True, control=["<start_of_turn>", "<end_of_turn>"],
                  pieces=["\n" * count for count in range(1, 32)]
                  + [MARK * count for count in range(2, 32)] + HTML),
    "phi3": dict(normalizer=PREPEND_AND_REPLACE, decoder=marked_decoder(), strips={"rstrip": True},
                 stripping=["</s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]),
}
# Mixtral is of the kind llama2, Granite 3 of smollm2, and Qwen3 with experts of qwen3.
OTHER_FAMILIES = ["gpt_neox", "o200k", "phi4", "gemma", "phi3"]


def add_tokens(tokenizer, options):
    # The first of a name stays.
    tokenizer.add_special_tokens([
        AddedToken(token, normalized=False, special=True, **options["strips"])
        for token in options.get("stripping", [])])
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
                                 + options.get("control", []))
    tokenizer.add_tokens([
        AddedToken("<tool>", normalized=False), AddedToken("<tool_call>", normalized=False),
        AddedToken("<\u00f1>", normalized=True),
        AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("word", single_word=True, normalized=False)])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False)
                          for token in options.get("plain", []) + options.get("pieces", [])])
    tokenizer.add_tokens([AddedToken(token, normalized=True, special=False)
                          for token in options.get("normalized", [])])


def put_in_front(tokenizer, token):
    return processors.TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, tokenizer.token_to_id(token))])


def merges_at_every_cut(vocab):
    """As files converted from tiktoken or SentencePiece have them: what makes a token together."""
    merges = []
    for token in sorted(vocab, key=vocab.get):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        merges += sorted(((left, right) for left, right in cuts if left in vocab and right in vocab),
                         key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
    return merges


def make_byte_kind(options, corpus, vocab_size):
    tokenizer = Tokenizer(models.BPE(ignore_merges=options.get("ignore_merges", False)))
    tokenizer.pre_tokenizer = options["pre"]
    if "normalizer" in options:
        tokenizer.normalizer = options["normalizer"]
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = [] if options.get("partial") else pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False))
    if options.get("every_cut"):
        vocab = tokenizer.get_vocab()
        tokenizer.model = models.BPE(vocab=vocab, merges=merges_at_every_cut(vocab),
                                     ignore_merges=options["ignore_merges"])
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
    if options.get("tab"):
        tokens[tokens.index("<0x09>")] = "\t"
    pieces = options.get("pieces", [])
    vocab = {token: number for number, token in enumerate(
        tokens + pieces + [token for token in sorted(model["vocab"], key=model["vocab"].get)
                           if token not in pieces])}
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer = Tokenizer(models.BPE(
        vocab=vocab, merges=merges_at_every_cut(vocab) if options.get("every_cut") else merges,
        unk_token="<unk>", fuse_unk=with_bytes or options.get("fuse", False),
        byte_fallback=with_bytes))
    if "normalizer" in options:
        tokenizer.normalizer = options["normalizer"]
    if "pre" in options:
        tokenizer.pre_tokenizer = options["pre"]
    if "decoder" in options:
        tokenizer.decoder = options["decoder"]
    tokenizer.add_special_tokens([token for token in ("<unk>", "<s>", "</s>")
                                  if token not in options.get("stripping", [])])
    add_tokens(tokenizer, options)
    tokenizer.post_processor = put_in_front(tokenizer, "<s>")
    return tokenizer


KINDS = [kind for kind in [*BYTE_KINDS, *CHARACTER_KINDS] if kind not in OTHER_FAMILIES] + OTHER_FAMILIES


def make(kind, corpus, vocab_size=700):
    if kind in BYTE_KINDS:
        return make_byte_kind(BYTE_KINDS[kind], corpus, vocab_size)
    return make_character_kind(CHARACTER_KINDS[kind], corpus, vocab_size)


def texts_of(kind):
    """The hand-made ones that a kind is tried with."""
    return (TEXTS + (MARKED_TEXTS if kind in CHARACTER_KINDS else [])
            + (FAMILY_TEXTS if kind in OTHER_FAMILIES else []))
