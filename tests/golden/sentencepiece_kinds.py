"""SentencePiece models of the kinds that models come with, as small ones trained on any text."""
import io

import sentencepiece

KINDS = {
    "sp_llama2": dict(byte_fallback=True, normalization_rule_name="identity",
                      remove_extra_whitespaces=False, split_digits=True,
                      allow_whitespace_only_pieces=True),
    "sp_plain": dict(normalization_rule_name="identity", add_dummy_prefix=False,
                     user_defined_symbols=["<tool>", "\t"]),
    "sp_nfkc": dict(byte_fallback=True, normalization_rule_name="nmt_nfkc"),
}
# Text to the package `sentencepiece`, and added tokens to us.
CONTROL = ("<unk>", "<s>", "</s>")


def train(kind, lines, vocab_size):
    """The model as bytes. Rare characters stay outside, so that what is unknown is tried, too."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line.rstrip("\n") for line in lines), model_writer=model,
        model_type="bpe", vocab_size=vocab_size, character_coverage=0.9995, minloglevel=2,
        hard_vocab_limit=False, **KINDS[kind])
    return model.getvalue()


class Reference:
    """What the package gives for texts without control pieces."""

    def __init__(self, model):
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @staticmethod
    def texts_of(texts):
        return [text for text in texts if not any(piece in text for piece in CONTROL)]

    def encode(self, text):
        return self.processor.encode(text)

    def decode(self, ids):
        """None where something is unknown: that has a surface of its own there, and ours is <unk>."""
        return None if self.processor.unk_id() in ids else self.processor.decode(ids)
