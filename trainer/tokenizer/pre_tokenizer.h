// PreTokenizer: cuts a text into the pieces that BPE works on, by the steps of a tokenizer.json's
// `pre_tokenizer`.
//
// Steps: Split with a pattern, Digits, and one ByteLevel, which comes last; alone or in a Sequence.
// Any other step is refused by name.
//
// Owned by Tokenizer; one thread at a time.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/tokenizer/split_regex.h"

namespace muster {

class PreTokenizer {
 public:
  using Sink = std::function<void(std::string_view piece)>;

  // `json` is the value of `pre_tokenizer`.
  static Result<PreTokenizer> Create(const nlohmann::json& json);

  // Calls `sink` with the raw bytes of every piece of `text`, which is valid UTF-8. A piece is
  // valid only during the call.
  void Run(std::string_view text, const Sink& sink) const;

 private:
  struct Step {
    enum class Kind { kSplit, kDigits, kPrefixSpace } kind = Kind::kSplit;
    std::optional<SplitRegex> regex;
    bool keep_matches = true;
    bool keep_gaps = true;
    bool individual_digits = false;
  };

  Status AddStep(const nlohmann::json& json, int depth);
  Status AddSplit(const nlohmann::json& json);
  Status AddByteLevel(const nlohmann::json& json);
  void RunFrom(std::size_t step, std::string_view text, const Sink& sink) const;
  void SplitDigits(const Step& step, std::string_view text, const Sink& sink) const;

  std::vector<Step> steps_;
  bool has_byte_level_ = false;
};

}  // namespace muster
