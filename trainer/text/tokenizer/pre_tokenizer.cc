#include "trainer/text/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "trainer/text/tokenizer/json_fields.h"
#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

namespace step = pre_tokenizer_step;

constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Result<SplitBehavior> BehaviorOf(const Json& json, const std::string& type) {
  const std::string& name = StringOf(json, "behavior");
  if (const auto behavior = SplitBehaviorOf(name)) return *behavior;
  return Unimplemented("pre_tokenizer " + type + " with behavior " + name + " is not supported");
}

// `part` for every character of the class and every gap between them.
template <typename IsMatch, typename Part>
void ForEachCharacterMatch(std::string_view text, const IsMatch& is_match, const Part& part) {
  std::size_t gap_begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(i));
    const auto length = static_cast<std::size_t>(c.length);
    if (is_match(c.code_point)) {
      part(text.substr(gap_begin, i - gap_begin), false);
      part(text.substr(i, length), true);
      gap_begin = i + length;
    }
    i += length;
  }
  part(text.substr(gap_begin), false);
}

using Pieces = PreTokenizer::Sink;

void Apply(const step::SplitAtPattern& step, std::string_view text, const Pieces& sink) {
  PieceJoiner joiner(step.behavior, sink);
  step.regex.Split(text, [&](std::string_view part, bool is_match) {
    joiner.Add(part, is_match != step.invert);
  });
  joiner.Finish();
}

void Apply(const step::SplitAtCharacters& step, std::string_view text, const Pieces& sink) {
  PieceJoiner joiner(step.behavior, sink);
  ForEachCharacterMatch(text, step.is_match,
                        [&](std::string_view part, bool is_match) { joiner.Add(part, is_match); });
  joiner.Finish();
}

void Apply(const step::SplitWords&, std::string_view text, const Pieces& sink) {
  enum class Kind { kSpace, kWord, kOther };
  Kind previous = Kind::kSpace;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(i));
    const Kind kind = IsUnicodeWord(c.code_point)    ? Kind::kWord
                      : IsUnicodeSpace(c.code_point) ? Kind::kSpace
                                                     : Kind::kOther;
    if (kind != previous) {
      if (previous != Kind::kSpace) sink(text.substr(begin, i - begin));
      begin = i;
    }
    previous = kind;
    i += static_cast<std::size_t>(c.length);
  }
  if (previous != Kind::kSpace) sink(text.substr(begin));
}

// The text that a step makes of its own before it splits.
template <typename Step>
std::string_view Rewritten(const Step&, std::string_view text, TextPlace, std::string*) {
  return text;
}

std::string_view Rewritten(const step::PrefixBlank&, std::string_view text, TextPlace place,
                           std::string* buffer) {
  if (text.front() == ' ' || place == TextPlace::kContinued) return text;
  return *buffer = ' ' + std::string(text);
}

std::string_view Rewritten(const step::Metaspace& step, std::string_view text, TextPlace place,
                           std::string* buffer) {
  using Prepend = step::Metaspace::Prepend;
  *buffer = ReplaceAll(text, " ", step.mark);
  const bool prepend = step.prepend == Prepend::kAlways
                           ? place != TextPlace::kContinued
                           : step.prepend == Prepend::kFirst && place == TextPlace::kStart;
  if (prepend && !buffer->starts_with(step.mark)) buffer->insert(0, step.mark);
  return *buffer;
}

void Apply(const step::PrefixBlank&, std::string_view text, const Pieces& sink) { sink(text); }

void Apply(const step::Metaspace& step, std::string_view marked, const Pieces& sink) {
  if (!step.split) return sink(marked);
  const char32_t mark = DecodeUtf8(step.mark).code_point;
  PieceJoiner joiner(SplitBehavior::kMergedWithNext, sink);
  ForEachCharacterMatch(
      marked, [&](char32_t c) { return c == mark; },
      [&](std::string_view part, bool is_match) { joiner.Add(part, is_match); });
  joiner.Finish();
}

}  // namespace

Result<PreTokenizer> PreTokenizer::Create(const Json& json) {
  PreTokenizer pre_tokenizer;
  if (!json.is_null()) MUSTER_RETURN_IF_ERROR(pre_tokenizer.AddStep(json, 0));
  return pre_tokenizer;
}

bool PreTokenizer::needs_position() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const PreTokenizerStep& step) {
    const auto* metaspace = std::get_if<step::Metaspace>(&step);
    return metaspace != nullptr && metaspace->prepend == step::Metaspace::Prepend::kFirst;
  });
}

Status PreTokenizer::AddStep(const Json& json, int depth) {
  const std::string type = TypeOf(json);
  if (byte_level_) return Unimplemented("pre_tokenizer has a step (" + type + ") after ByteLevel");
  if (type == "Sequence" && depth < kMaxStepDepth) {
    for (const Json& part : ListOf(json, "pretokenizers"))
      MUSTER_RETURN_IF_ERROR(AddStep(part, depth + 1));
    return OkStatus();
  }
  if (type == "Split") return AddSplit(json);
  if (type == "Punctuation") return AddPunctuation(json);
  if (type == "Metaspace") return AddMetaspace(json);
  if (type == "ByteLevel") return AddByteLevel(json);
  if (type == "Digits") {
    steps_.emplace_back(step::SplitAtCharacters{
        IsUnicodeNumeric, BoolOr(json, "individual_digits", false) ? SplitBehavior::kIsolated
                                                                   : SplitBehavior::kContiguous});
  } else if (type == "WhitespaceSplit") {
    steps_.emplace_back(step::SplitAtCharacters{IsUnicodeSpace, SplitBehavior::kRemoved});
  } else if (type == "Whitespace") {
    steps_.emplace_back(step::SplitWords{});
  } else {
    return Unimplemented("pre_tokenizer " + type +
                         " is not supported; ByteLevel, Split, Digits, Metaspace, Whitespace, "
                         "WhitespaceSplit, Punctuation and Sequence are");
  }
  return OkStatus();
}

Status PreTokenizer::AddSplit(const Json& json) {
  const Json& pattern = Member(json, "pattern");
  const bool literal = pattern.contains("String");
  const std::string& text = StringOf(pattern, literal ? "String" : "Regex");
  MUSTER_ASSIGN_OR_RETURN(
      SplitRegex regex,
      SplitRegex::Compile(text, literal ? PatternKind::kLiteral : PatternKind::kRegex));
  MUSTER_ASSIGN_OR_RETURN(const SplitBehavior behavior, BehaviorOf(json, "Split"));
  const bool keeps_apart =
      behavior == SplitBehavior::kIsolated || behavior == SplitBehavior::kRemoved;
  if (!keeps_apart && regex.MayMatchEmpty())
    return Unimplemented("pre_tokenizer Split merges matches of the pattern " + text +
                         ", which may match nothing");
  steps_.emplace_back(
      step::SplitAtPattern{std::move(regex), behavior, BoolOr(json, "invert", false)});
  return OkStatus();
}

Status PreTokenizer::AddPunctuation(const Json& json) {
  SplitBehavior behavior = SplitBehavior::kIsolated;
  if (!MemberOrNull(json, "behavior").is_null()) {
    MUSTER_ASSIGN_OR_RETURN(behavior, BehaviorOf(json, "Punctuation"));
  }
  steps_.emplace_back(step::SplitAtCharacters{IsUnicodePunctuation, behavior});
  return OkStatus();
}

Status PreTokenizer::AddMetaspace(const Json& json) {
  step::Metaspace metaspace;
  metaspace.mark = CharacterOf(json, "replacement");
  metaspace.split = BoolOr(json, "split", true);
  MUSTER_ASSIGN_OR_RETURN(const std::string scheme, MetaspaceSchemeOf(json));
  if (scheme == "first")
    metaspace.prepend = step::Metaspace::Prepend::kFirst;
  else if (scheme == "never")
    metaspace.prepend = step::Metaspace::Prepend::kNever;
  steps_.emplace_back(std::move(metaspace));
  return OkStatus();
}

Status PreTokenizer::AddByteLevel(const Json& json) {
  byte_level_ = true;
  if (BoolOr(json, "add_prefix_space", true)) steps_.emplace_back(step::PrefixBlank{});
  if (BoolOr(json, "use_regex", true)) {
    MUSTER_ASSIGN_OR_RETURN(SplitRegex regex,
                            SplitRegex::Compile(kGpt2Pattern, PatternKind::kRegex));
    steps_.emplace_back(step::SplitAtPattern{std::move(regex), SplitBehavior::kIsolated, false});
  }
  return OkStatus();
}

void PreTokenizer::RunFrom(std::size_t index, std::string_view text, TextPlace place,
                           const Sink& sink) const {
  if (text.empty()) return;
  if (index == steps_.size()) return sink(text);
  std::visit(
      [&](const auto& step) {
        std::string buffer;
        const std::string_view whole = Rewritten(step, text, place, &buffer);
        Apply(step, whole, [&](std::string_view piece) {
          RunFrom(index + 1, piece, PlaceOfPart(piece, whole, place), sink);
        });
      },
      steps_[index]);
}

void PreTokenizer::Run(std::string_view text, TextPlace place, const Sink& sink) const {
  RunFrom(0, text, place, sink);
}

}  // namespace muster
