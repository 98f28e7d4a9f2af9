#include "trainer/text/tokenizer/split_regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Matches in brackets, gaps as they are.
std::vector<std::string> Pieces(const SplitRegex& regex, std::string_view text) {
  std::vector<std::string> pieces;
  regex.Split(text, [&](std::string_view piece, bool is_match) {
    pieces.push_back(is_match ? "[" + std::string(piece) + "]" : std::string(piece));
  });
  return pieces;
}

SplitRegex Compiled(const std::string& pattern, PatternKind kind = PatternKind::kRegex) {
  auto regex = SplitRegex::Compile(pattern, kind);
  EXPECT_TRUE(regex.ok()) << regex.status().ToString();
  return *std::move(regex);
}

TEST(SplitRegexTest, GivesMatchesAndGapsInOrder) {
  EXPECT_THAT(Pieces(Compiled("[0-9]+"), "a12b3"), ElementsAre("a", "[12]", "b", "[3]"));
  EXPECT_THAT(Pieces(Compiled("x"), "abc"), ElementsAre("abc"));
  EXPECT_THAT(Pieces(Compiled("x"), ""), ElementsAre());
  EXPECT_THAT(Pieces(Compiled(R"(\p{L}+)"), "日本é, ñ"), ElementsAre("[日本é]", ", ", "[ñ]"));
}

TEST(SplitRegexTest, AnEmptyMatchSplitsNothing) {
  EXPECT_THAT(Pieces(Compiled("x*"), "日axxb"), ElementsAre("日a", "[xx]", "b"));
}

TEST(SplitRegexTest, KnowsWhetherItMayMatchNothing) {
  EXPECT_TRUE(Compiled("x*").MayMatchEmpty());
  EXPECT_FALSE(Compiled("x+").MayMatchEmpty());
}

TEST(SplitRegexTest, LinesAnchorEverywhereAndSpacesAreUnicodes) {
  EXPECT_THAT(Pieces(Compiled("^a"), "a\na"), ElementsAre("[a]", "\n", "[a]"));
  EXPECT_THAT(Pieces(Compiled(R"(\s+)"), "a\u3000\u00a0b\u180ec"),
              ElementsAre("a", "[\u3000\u00a0]", "b\u180ec"));
  EXPECT_THAT(Pieces(Compiled(R"([^\s]+)"), "a\u180e b"), ElementsAre("[a\u180e]", " ", "[b]"));
  EXPECT_THAT(Pieces(Compiled(R"(\S+)"), "a\u180e b"), ElementsAre("[a\u180e]", " ", "[b]"));
}

TEST(SplitRegexTest, ALiteralIsNoPattern) {
  EXPECT_THAT(Pieces(Compiled("a.c", PatternKind::kLiteral), "abca.c"),
              ElementsAre("abc", "[a.c]"));
}

TEST(SplitRegexTest, LongRunsDoNotExhaustTheEngine) {
  const std::string text(1 << 18, 'a');
  EXPECT_THAT(Pieces(Compiled(R"((?:a|b)+)"), text), ElementsAre("[" + text + "]"));
}

TEST(SplitRegexTest, RefusesWhatMeansSomethingElseElsewhere) {
  for (const char* pattern :
       {R"(\w+)", R"(a\b)", R"(\h)", R"([a-z&&[^b]])", R"([a[bc]])", R"((?<n>a)\k<n>)"}) {
    const auto regex = SplitRegex::Compile(pattern, PatternKind::kRegex);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_EQ(regex.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(regex.status().message(), HasSubstr(pattern));
  }
  const auto broken = SplitRegex::Compile("(a", PatternKind::kRegex);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(broken.status().message(), HasSubstr("(a"));
}

}  // namespace
}  // namespace muster
