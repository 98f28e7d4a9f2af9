#include "trainer/text/tokenizer/normalizer.h"

#include <optional>
#include <utility>

#include "trainer/text/tokenizer/json_fields.h"

namespace muster {
namespace {

namespace step = normalizer_step;

std::optional<NormalForm> NormalFormOf(const std::string& type) {
  if (type == "NFC") return NormalForm::kNfc;
  if (type == "NFD") return NormalForm::kNfd;
  if (type == "NFKC") return NormalForm::kNfkc;
  if (type == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

std::string Apply(const step::ToNormalForm& step, std::string text) {
  return NormalizeUtf8(text, step.form);
}

std::string Apply(const step::Lowercase&, std::string text) { return LowerUtf8(text); }

std::string Apply(const step::Strip& step, std::string text) {
  std::string_view rest = text;
  while (step.left && !rest.empty() && IsUnicodeSpace(DecodeUtf8(rest).code_point))
    rest.remove_prefix(static_cast<std::size_t>(DecodeUtf8(rest).length));
  while (step.right && !rest.empty() && IsUnicodeSpace(LastUtf8(rest).code_point))
    rest.remove_suffix(static_cast<std::size_t>(LastUtf8(rest).length));
  return std::string(rest);
}

std::string Apply(const step::Prepend& step, std::string text) {
  return text.empty() ? text : step.text + text;
}

std::string Apply(const step::Replace& step, std::string text) {
  return step.replacement.Run(text);
}

std::string Apply(const step::MapCharacters& step, std::string text) { return step.map.Run(text); }

std::string Apply(const step::CollapseBlanks&, std::string text) {
  std::string out;
  bool after_blank = true;
  for (const char c : text) {
    if (c != ' ' || !after_blank) out += c;
    after_blank = c == ' ';
  }
  return out;
}

std::string Apply(const step::TrimEnd& step, std::string text) {
  while (text.ends_with(step.text)) text.resize(text.size() - step.text.size());
  return text;
}

}  // namespace

Result<Normalizer> Normalizer::Create(const Json& json) {
  Normalizer normalizer;
  if (!json.is_null()) MUSTER_RETURN_IF_ERROR(normalizer.AddStep(json, 0));
  return normalizer;
}

Status Normalizer::AddStep(const Json& json, int depth) {
  const std::string type = TypeOf(json);
  if (type == "Sequence" && depth < kMaxStepDepth) {
    for (const Json& part : ListOf(json, "normalizers"))
      MUSTER_RETURN_IF_ERROR(AddStep(part, depth + 1));
    return OkStatus();
  }
  if (const auto form = NormalFormOf(type)) {
    steps_.emplace_back(step::ToNormalForm{*form});
  } else if (type == "Lowercase") {
    steps_.emplace_back(step::Lowercase{});
  } else if (type == "Strip") {
    steps_.emplace_back(
        step::Strip{BoolOr(json, "strip_left", true), BoolOr(json, "strip_right", true)});
  } else if (type == "Replace") {
    MUSTER_ASSIGN_OR_RETURN(TextReplacement replacement, TextReplacement::Create(json));
    steps_.emplace_back(step::Replace{std::move(replacement)});
  } else if (type == "Prepend") {
    steps_.emplace_back(step::Prepend{StringOf(json, "prepend")});
  } else {
    return Unimplemented("normalizer " + type +
                         " is not supported; NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, "
                         "Replace and Sequence are");
  }
  return OkStatus();
}

std::string Normalizer::Run(std::string_view text, TextPlace place) const {
  std::string out(text);
  for (const NormalizerStep& step : steps_) {
    if (place == TextPlace::kContinued && std::holds_alternative<step::Prepend>(step)) continue;
    out = std::visit([&](const auto& kind) { return Apply(kind, std::move(out)); }, step);
  }
  return out;
}

}  // namespace muster
