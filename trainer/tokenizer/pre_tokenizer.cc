#include "trainer/tokenizer/pre_tokenizer.h"

#include <nlohmann/json.hpp>
#include <string>

#include "trainer/tokenizer/utf8.h"

namespace muster {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 8;
constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string TypeOf(const Json& json) {
  return json.is_object() && json.contains("type") && json["type"].is_string()
             ? json["type"].get<std::string>()
             : std::string("without a type");
}

// Values of the wrong type throw, as in all of this file; Create turns that into a Status.
bool BoolOr(const Json& json, const char* key, bool fallback) {
  const auto it = json.find(key);
  return it == json.end() || it->is_null() ? fallback : it->get<bool>();
}

}  // namespace

Result<PreTokenizer> PreTokenizer::Create(const Json& json) {
  PreTokenizer pre_tokenizer;
  try {
    if (!json.is_null()) MUSTER_RETURN_IF_ERROR(pre_tokenizer.AddStep(json, 0));
  } catch (const Json::exception& error) {
    return InvalidArgument(std::string("pre_tokenizer: ") + error.what());
  }
  if (!pre_tokenizer.has_byte_level_)
    return Unimplemented("pre_tokenizer has no ByteLevel step; this version reads byte-level BPE");
  return pre_tokenizer;
}

Status PreTokenizer::AddStep(const Json& json, int depth) {
  const std::string type = TypeOf(json);
  if (has_byte_level_)
    return Unimplemented("pre_tokenizer has a step (" + type + ") after ByteLevel");
  if (type == "Sequence" && depth < kMaxDepth) {
    for (const Json& step : json.at("pretokenizers"))
      MUSTER_RETURN_IF_ERROR(AddStep(step, depth + 1));
    return OkStatus();
  }
  if (type == "Split") return AddSplit(json);
  if (type == "ByteLevel") return AddByteLevel(json);
  if (type == "Digits") {
    Step step;
    step.kind = Step::Kind::kDigits;
    step.individual_digits = BoolOr(json, "individual_digits", false);
    steps_.push_back(std::move(step));
    return OkStatus();
  }
  return Unimplemented("pre_tokenizer " + type +
                       " is not supported; Split, Digits and ByteLevel are");
}

Status PreTokenizer::AddSplit(const Json& json) {
  const Json& pattern = json.at("pattern");
  const bool literal = pattern.contains("String");
  MUSTER_ASSIGN_OR_RETURN(
      SplitRegex regex, SplitRegex::Compile(pattern.at(literal ? "String" : "Regex"),
                                            literal ? PatternKind::kLiteral : PatternKind::kRegex));
  const auto behavior = json.at("behavior").get<std::string>();
  if (behavior != "Isolated" && behavior != "Removed")
    return Unimplemented("pre_tokenizer Split with behavior " + behavior +
                         " is not supported; Isolated and Removed are");
  const bool invert = BoolOr(json, "invert", false);
  Step step;
  step.regex = std::move(regex);
  step.keep_matches = behavior == "Isolated" || invert;
  step.keep_gaps = behavior == "Isolated" || !invert;
  steps_.push_back(std::move(step));
  return OkStatus();
}

Status PreTokenizer::AddByteLevel(const Json& json) {
  has_byte_level_ = true;
  if (BoolOr(json, "add_prefix_space", true)) {
    Step step;
    step.kind = Step::Kind::kPrefixSpace;
    steps_.push_back(std::move(step));
  }
  if (BoolOr(json, "use_regex", true)) {
    MUSTER_ASSIGN_OR_RETURN(SplitRegex regex,
                            SplitRegex::Compile(kGpt2Pattern, PatternKind::kRegex));
    Step step;
    step.regex = std::move(regex);
    steps_.push_back(std::move(step));
  }
  return OkStatus();
}

void PreTokenizer::SplitDigits(const Step& step, std::string_view text, const Sink& sink) const {
  std::size_t begin = 0;
  bool previous_digit = false;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(i));
    const bool digit = IsUnicodeNumeric(c.code_point);
    const bool cut = digit != previous_digit || (digit && step.individual_digits);
    if (cut && i > begin) {
      sink(text.substr(begin, i - begin));
      begin = i;
    }
    previous_digit = digit;
    i += static_cast<std::size_t>(c.length);
  }
  if (begin < text.size()) sink(text.substr(begin));
}

void PreTokenizer::RunFrom(std::size_t index, std::string_view text, const Sink& sink) const {
  if (text.empty()) return;
  if (index == steps_.size()) return sink(text);
  const Step& step = steps_[index];
  const auto next = [&](std::string_view piece) { RunFrom(index + 1, piece, sink); };
  switch (step.kind) {
    case Step::Kind::kDigits: return SplitDigits(step, text, next);
    case Step::Kind::kPrefixSpace:
      return text.front() == ' ' ? next(text) : next(' ' + std::string(text));
    case Step::Kind::kSplit:
      return step.regex->Split(text, [&](std::string_view piece, bool is_match) {
        if (is_match ? step.keep_matches : step.keep_gaps) next(piece);
      });
  }
}

void PreTokenizer::Run(std::string_view text, const Sink& sink) const { RunFrom(0, text, sink); }

}  // namespace muster
