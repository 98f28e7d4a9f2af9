// What methods of texts and filters on texts have in common: Python's str, marks kept.
//
// Pure functions; they throw Error when a text grows too large.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/text/chat/jinja/text.h"

namespace muster::jinja {

// str.strip and its like.
Text Strip(const Text& text, const StripOptions& options);
// The first `count` occurrences; negative: all.
Text Replace(const Text& text, const Text& from, const Text& to, std::int64_t count);
// str.split(): on white space, or on a separator that is not empty; `limit` cuts at most, negative:
// all. `from_right`: str.rsplit.
struct SplitOptions {
  std::int64_t limit = -1;
  bool from_right = false;
};
std::vector<Text> SplitSpace(const Text& text, const SplitOptions& options);
std::vector<Text> SplitAt(const Text& text, std::string_view separator,
                          const SplitOptions& options);

Text Upper(const Text& text);
Text Lower(const Text& text);
// First character upper, all others lower.
Text Capitalize(const Text& text);
// str.title: every run of letters begins with an upper one.
Text TitleByLetters(const Text& text);
// The filter title: words begin after white space, hyphens and opening brackets.
Text TitleByWords(const Text& text);

// str.isupper and its like: at least one character that counts, and none against it.
bool IsAllUpper(std::string_view text);
bool IsAllLower(std::string_view text);
// Not empty, and every code point passes.
bool AllOf(std::string_view text, bool (*passes)(std::int32_t));

}  // namespace muster::jinja
