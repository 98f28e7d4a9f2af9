// Normalizer: rewrites a text before it is cut up, by the steps of a tokenizer.json's `normalizer`
// or of a SentencePiece model.
//
// Total over valid UTF-8 and gives valid UTF-8. A kind of step that this version does not know is
// refused by name.
//
// Owned by Tokenizer. Immutable; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "trainer/text/tokenizer/charsmap.h"
#include "trainer/text/tokenizer/text_place.h"
#include "trainer/text/tokenizer/text_replacement.h"
#include "trainer/text/tokenizer/utf8.h"

namespace muster {

namespace normalizer_step {

struct ToNormalForm {
  NormalForm form = NormalForm::kNfc;
};
struct Lowercase {};
// White space at the ends.
struct Strip {
  bool left = true;
  bool right = true;
};
// In front of a text that is not empty.
struct Prepend {
  std::string text;
};
struct Replace {
  TextReplacement replacement;
};
struct MapCharacters {
  Charsmap map;
};
// SentencePiece's remove_extra_whitespaces, its first half: no blanks at the beginning, one of a
// run.
struct CollapseBlanks {};
// And its second half: `text`, as often as it stands at the end, is taken away.
struct TrimEnd {
  std::string text;  // not empty
};

}  // namespace normalizer_step

using NormalizerStep =
    std::variant<normalizer_step::ToNormalForm, normalizer_step::Lowercase, normalizer_step::Strip,
                 normalizer_step::Prepend, normalizer_step::Replace, normalizer_step::MapCharacters,
                 normalizer_step::CollapseBlanks, normalizer_step::TrimEnd>;

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  // `json` is the value of `normalizer`.
  static Result<Normalizer> Create(const nlohmann::json& json);

  // Whether Run gives back what it gets.
  bool empty() const { return steps_.empty(); }
  // Nothing is prepended to a text that is continued.
  std::string Run(std::string_view text, TextPlace place = TextPlace::kStart) const;

 private:
  Status AddStep(const nlohmann::json& json, int depth);

  std::vector<NormalizerStep> steps_;
};

}  // namespace muster
