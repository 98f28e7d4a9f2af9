#include "trainer/text/tokenizer/text_replacement.h"

#include "trainer/text/tokenizer/json_fields.h"
#include "trainer/text/tokenizer/utf8.h"

namespace muster {

Result<TextReplacement> TextReplacement::Create(const Json& json) {
  const Json& pattern = Member(json, "pattern");
  std::string content = StringOf(json, "content");
  if (pattern.contains("String")) {
    std::string from = StringOf(pattern, "String");
    if (from.empty()) return Unimplemented("Replace of the empty text is not supported");
    return TextReplacement(std::move(from), std::move(content));
  }
  const std::string& text = StringOf(pattern, "Regex");
  MUSTER_ASSIGN_OR_RETURN(SplitRegex regex, SplitRegex::Compile(text, PatternKind::kRegex));
  if (regex.MayMatchEmpty())
    return Unimplemented("Replace with the pattern " + text +
                         ", which may match nothing, is not supported");
  return TextReplacement(std::move(regex), std::move(content));
}

std::string TextReplacement::Run(std::string_view text) const {
  if (const auto* from = std::get_if<std::string>(&pattern_))
    return ReplaceAll(text, *from, content_);
  std::string out;
  std::get<SplitRegex>(pattern_).Split(text, [&](std::string_view piece, bool is_match) {
    out.append(is_match ? std::string_view(content_) : piece);
  });
  return out;
}

}  // namespace muster
