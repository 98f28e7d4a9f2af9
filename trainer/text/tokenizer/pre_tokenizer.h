// PreTokenizer: cuts a text into the pieces that BPE works on, by the steps of a tokenizer.json's
// `pre_tokenizer`. Without steps the text is one piece.
//
// Steps split at matches of a pattern or of a class of characters, or write a mark in place of
// blanks (Metaspace). ByteLevel, which has BPE work on bytes, is the last one. A kind of step that
// this version does not know is refused by name.
//
// Owned by Tokenizer. Immutable; any thread.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "trainer/text/tokenizer/split_behavior.h"
#include "trainer/text/tokenizer/split_regex.h"
#include "trainer/text/tokenizer/text_place.h"

namespace muster {

namespace pre_tokenizer_step {

struct SplitAtPattern {
  SplitRegex regex;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // the gaps are the matches
};
// Each character of the class is a match.
struct SplitAtCharacters {
  bool (*is_match)(char32_t code_point) = nullptr;
  SplitBehavior behavior = SplitBehavior::kIsolated;
};
// Runs of word characters, runs of others, and no white space.
struct SplitWords {};
struct PrefixBlank {};
struct Metaspace {
  enum class Prepend { kAlways, kFirst, kNever };
  std::string mark;  // one character
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};

}  // namespace pre_tokenizer_step

using PreTokenizerStep =
    std::variant<pre_tokenizer_step::SplitAtPattern, pre_tokenizer_step::SplitAtCharacters,
                 pre_tokenizer_step::SplitWords, pre_tokenizer_step::PrefixBlank,
                 pre_tokenizer_step::Metaspace>;

class PreTokenizer {
 public:
  using Sink = std::function<void(std::string_view piece)>;

  // `json` is the value of `pre_tokenizer`.
  static Result<PreTokenizer> Create(const nlohmann::json& json);

  // Whether the vocabulary spells bytes (byte_alphabet.h), not characters.
  bool byte_level() const { return byte_level_; }
  // Whether a step asks whether it is at the start of the input.
  bool needs_position() const;

  // Calls `sink` with every piece of `text`, which is valid UTF-8; no piece is empty, and each is
  // valid only during the call. Nothing is put in front of a text that is continued.
  void Run(std::string_view text, TextPlace place, const Sink& sink) const;

 private:
  Status AddStep(const nlohmann::json& json, int depth);
  Status AddSplit(const nlohmann::json& json);
  Status AddPunctuation(const nlohmann::json& json);
  Status AddMetaspace(const nlohmann::json& json);
  Status AddByteLevel(const nlohmann::json& json);
  void RunFrom(std::size_t index, std::string_view text, TextPlace place, const Sink& sink) const;

  std::vector<PreTokenizerStep> steps_;
  bool byte_level_ = false;
};

}  // namespace muster
