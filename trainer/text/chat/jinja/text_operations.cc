#include "trainer/text/chat/jinja/text_operations.h"

#include <algorithm>
#include <string>

namespace muster::jinja {
namespace {

enum class Case { kUpper, kLower };

// The text with each code point in the case that `choose` says of it.
template <typename Choose>
Text WithCase(const Text& text, const Choose& choose) {
  Text out;
  std::string changed;
  for (std::size_t i = 0; i < text.size(); i = NextOffset(text.bytes(), i)) {
    const std::int32_t c = CodePointAt(text.bytes(), i);
    changed.clear();
    if (choose(c) == Case::kUpper) {
      AppendUpper(&changed, c);
    } else {
      AppendLower(&changed, c);
    }
    out.Append(changed, text.MarkAt(i));
  }
  return out;
}

Text JoinParts(const Text& text, const std::vector<Interval>& parts, const Text& between) {
  Text out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.Append(between);
    out.AppendPart(text, parts[i].begin, parts[i].end);
  }
  return out;
}

// What `count` occurrences of the separator leave of the text; negative: all occurrences.
std::vector<Interval> PartsBetween(std::string_view text, std::string_view separator,
                                   std::int64_t count) {
  std::vector<Interval> parts;
  std::size_t begin = 0;
  while (count != 0) {
    const std::size_t found = text.find(separator, begin);
    if (found == std::string_view::npos) break;
    parts.push_back({begin, found});
    begin = found + separator.size();
    if (count > 0) --count;
  }
  parts.push_back({begin, text.size()});
  return parts;
}

std::vector<Interval> PartsBetweenFromRight(std::string_view text, std::string_view separator,
                                            std::int64_t count) {
  std::vector<Interval> parts;
  std::size_t end = text.size();
  while (count != 0 && end >= separator.size()) {
    const std::size_t found = text.rfind(separator, end - separator.size());
    if (found == std::string_view::npos) break;
    parts.push_back({found + separator.size(), end});
    end = found;
    if (count > 0) --count;
  }
  parts.push_back({0, end});
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> Cut(const Text& text, const std::vector<Interval>& parts) {
  std::vector<Text> texts;
  texts.reserve(parts.size());
  for (const Interval& part : parts) texts.push_back(text.Part(part.begin, part.end));
  return texts;
}

}  // namespace

Text Strip(const Text& text, const StripOptions& options) {
  const Interval kept = Stripped(text.bytes(), options);
  return text.Part(kept.begin, kept.end);
}

Text Replace(const Text& text, const Text& from, const Text& to, std::int64_t count) {
  if (!from.empty()) return JoinParts(text, PartsBetween(text.bytes(), from.bytes(), count), to);
  // Before every code point and at the end, as Python has it.
  Text out;
  std::size_t i = 0;
  for (; count != 0; --count) {
    out.Append(to);
    if (i == text.size()) return out;
    const std::size_t next = NextOffset(text.bytes(), i);
    out.AppendPart(text, i, next);
    i = next;
  }
  out.AppendPart(text, i, text.size());
  return out;
}

std::vector<Text> SplitSpace(const Text& text, const SplitOptions& options) {
  std::string_view rest = text.bytes();
  std::vector<Interval> words;
  const auto is_space = [&](std::size_t i) { return IsSpace(CodePointAt(text.bytes(), i)); };
  std::int64_t left = options.limit;
  if (options.from_right) {
    std::size_t end = Stripped(rest, {.left = false}).end;
    while (end > 0) {
      std::size_t begin = end;
      if (left == 0) begin = 0;
      while (left != 0 && begin > 0 && !is_space(PreviousOffset(rest, begin)))
        begin = PreviousOffset(rest, begin);
      words.push_back({begin, end});
      if (left == 0) break;
      if (left > 0) --left;
      end = Stripped(rest.substr(0, begin), {.left = false}).end;
    }
    std::reverse(words.begin(), words.end());
    return Cut(text, words);
  }
  std::size_t begin = Stripped(rest, {.right = false}).begin;
  while (begin < rest.size()) {
    std::size_t end = begin;
    if (left == 0) end = rest.size();
    while (left != 0 && end < rest.size() && !is_space(end)) end = NextOffset(rest, end);
    words.push_back({begin, end});
    if (left == 0) break;
    if (left > 0) --left;
    begin = end + Stripped(rest.substr(end), {.right = false}).begin;
  }
  return Cut(text, words);
}

std::vector<Text> SplitAt(const Text& text, std::string_view separator,
                          const SplitOptions& options) {
  return Cut(text, options.from_right
                       ? PartsBetweenFromRight(text.bytes(), separator, options.limit)
                       : PartsBetween(text.bytes(), separator, options.limit));
}

Text Upper(const Text& text) {
  return WithCase(text, [](std::int32_t) { return Case::kUpper; });
}

Text Lower(const Text& text) {
  return WithCase(text, [](std::int32_t) { return Case::kLower; });
}

Text Capitalize(const Text& text) {
  bool first = true;
  return WithCase(text, [&first](std::int32_t) {
    const Case chosen = first ? Case::kUpper : Case::kLower;
    first = false;
    return chosen;
  });
}

Text TitleByLetters(const Text& text) {
  bool within = false;
  return WithCase(text, [&within](std::int32_t c) {
    const Case chosen = within ? Case::kLower : Case::kUpper;
    within = IsUpper(c) || IsLower(c);
    return chosen;
  });
}

Text TitleByWords(const Text& text) {
  bool begins = true;
  return WithCase(text, [&begins](std::int32_t c) {
    const bool between = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsSpace(c);
    const Case chosen = begins ? Case::kUpper : Case::kLower;
    begins = between;
    return chosen;
  });
}

bool IsAllUpper(std::string_view text) {
  bool any = false;
  for (std::size_t i = 0; i < text.size(); i = NextOffset(text, i)) {
    const std::int32_t c = CodePointAt(text, i);
    if (IsLower(c)) return false;
    any = any || IsUpper(c);
  }
  return any;
}

bool IsAllLower(std::string_view text) {
  bool any = false;
  for (std::size_t i = 0; i < text.size(); i = NextOffset(text, i)) {
    const std::int32_t c = CodePointAt(text, i);
    if (IsUpper(c)) return false;
    any = any || IsLower(c);
  }
  return any;
}

bool AllOf(std::string_view text, bool (*passes)(std::int32_t)) {
  for (std::size_t i = 0; i < text.size(); i = NextOffset(text, i))
    if (!passes(CodePointAt(text, i))) return false;
  return !text.empty();
}

}  // namespace muster::jinja
