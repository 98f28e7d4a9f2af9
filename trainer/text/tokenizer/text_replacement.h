// TextReplacement: the step Replace, which normalizers and decoders share.
//
// Owned by the step; immutable; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "common/base/result.h"
#include "trainer/text/tokenizer/split_regex.h"

namespace muster {

class TextReplacement {
 public:
  // {"pattern": {"String": ...} or {"Regex": ...}, "content": ...}. A pattern that may match
  // nothing is refused by name. Throws as json_fields.h says.
  static Result<TextReplacement> Create(const nlohmann::json& json);

  // `from` is not empty.
  TextReplacement(std::string from, std::string to)
      : pattern_(std::move(from)), content_(std::move(to)) {}

  std::string Run(std::string_view text) const;

 private:
  TextReplacement(SplitRegex pattern, std::string to)
      : pattern_(std::move(pattern)), content_(std::move(to)) {}

  std::variant<std::string, SplitRegex> pattern_;
  std::string content_;
};

}  // namespace muster
