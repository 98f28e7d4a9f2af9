// Tokenizer: text to token ids and back, as a model's tokenizer.json or tokenizer.model says.
//
// Gives the same ids and texts as the Python package `tokenizers` for the kinds of BPE that it
// accepts (GPT-2, Llama 2 and 3, Mistral, Qwen 2 and 3, SmolLM 2 and their like), and the same ids
// as `sentencepiece` for a tokenizer.model. Every other kind (WordPiece, Unigram, other steps) is
// refused by name at Load, because a tokenizer that is nearly right trains a model that is quietly
// wrong. docs/model-and-data.md lists what is accepted.
//
// Encode and Decode are total: a byte sequence that is not UTF-8 counts as U+FFFD, an id without a
// token decodes to nothing. Whether Decode(Encode(text)) is `text` again is the tokenizer's affair:
// it is for byte-level ones without a normalizer that put no blank in front.
//
// Movable, owned by the caller. Keeps a cache of pre-tokens and is therefore used by one thread at
// a time; each thread gets one of its own by Share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster {

struct EncodeOptions {
  // Put the ids of the post-processor's template around the text (Llama 3: begin of text).
  bool add_special_tokens = false;
  // Recognise added tokens such as <|im_end|> inside the text. Off for text that must not be able
  // to forge them, what a user wrote within a chat turn: then only those of white space alone are
  // (OLMoE: runs of blanks; Gemma: line breaks).
  bool parse_added_tokens = true;
  // The text goes on from text that was encoded before it, so that a tokenizer that puts a blank or
  // a mark in front of every text (Llama 2, Mistral) puts none here. False where nothing stands
  // before it, or an added token.
  bool continues_text = false;
};

struct DecodeOptions {
  bool skip_special_tokens = false;
};

class Tokenizer {
 public:
  // Reads dir/tokenizer.json or, where there is none, dir/tokenizer.model.
  static Result<Tokenizer> Load(const std::string& dir);
  // A tokenizer.json given as text; `origin` names it in errors.
  static Result<Tokenizer> Parse(std::string_view json, const std::string& origin);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // One more on the same tables, with a cache of its own: for another thread, which may use it and
  // outlive this one.
  Tokenizer Share() const;

  std::vector<std::int32_t> Encode(std::string_view text, EncodeOptions options = {}) const;
  std::string Decode(const std::vector<std::int32_t>& ids, DecodeOptions options = {}) const;

  // The id of a token as the file spells it: "<|im_end|>", "Ġthe".
  std::optional<std::int32_t> TokenId(std::string_view token) const;
  // Empty if no token has this id.
  std::string TokenText(std::int32_t id) const;
  // What EncodeOptions::add_special_tokens puts before a text and after it.
  const std::vector<std::int32_t>& Prefix() const;
  const std::vector<std::int32_t>& Suffix() const;
  // Whether the id is that of an added token, which ends the text before it.
  bool IsAddedToken(std::int32_t id) const;
  // Whether it is that of an added token of white space alone, which no text can forge.
  bool IsAddedSpace(std::int32_t id) const;
  // Whether it is that of an added token that takes along the white space on that side (Phi-3,
  // Phi-4).
  bool TakesSpaceBefore(std::int32_t id) const;
  bool TakesSpaceBehind(std::int32_t id) const;
  // The largest id plus one, added tokens included.
  std::int32_t vocab_size() const;

 private:
  struct Impl;
  struct Cache;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
  std::unique_ptr<Cache> cache_;
};

}  // namespace muster
