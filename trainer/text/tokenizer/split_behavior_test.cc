#include "trainer/text/tokenizer/split_behavior.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster {
namespace {

using ::testing::ElementsAre;

// The pieces of `text` split at its dashes; `invert`: at what is none.
std::vector<std::string> Pieces(SplitBehavior behavior, std::string_view text,
                                bool invert = false) {
  std::vector<std::string> pieces;
  const PieceJoiner::Sink sink = [&](std::string_view piece) { pieces.emplace_back(piece); };
  PieceJoiner joiner(behavior, sink);
  std::size_t gap = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '-') continue;
    joiner.Add(text.substr(gap, i - gap), invert);
    joiner.Add(text.substr(i, 1), !invert);
    gap = i + 1;
  }
  joiner.Add(text.substr(gap), invert);
  joiner.Finish();
  return pieces;
}

TEST(SplitBehaviorTest, MakesOfMatchesWhatItsNameSays) {
  constexpr char kText[] = "the-final--countdown";
  EXPECT_THAT(Pieces(SplitBehavior::kRemoved, kText), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(Pieces(SplitBehavior::kIsolated, kText),
              ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(Pieces(SplitBehavior::kMergedWithPrevious, kText),
              ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(Pieces(SplitBehavior::kMergedWithNext, kText),
              ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(Pieces(SplitBehavior::kContiguous, kText),
              ElementsAre("the", "-", "final", "--", "countdown"));
}

TEST(SplitBehaviorTest, MatchesAtTheEndsStandAlone) {
  EXPECT_THAT(Pieces(SplitBehavior::kMergedWithPrevious, "-a-"), ElementsAre("-", "a-"));
  EXPECT_THAT(Pieces(SplitBehavior::kMergedWithNext, "-a-"), ElementsAre("-a", "-"));
  EXPECT_THAT(Pieces(SplitBehavior::kContiguous, "--"), ElementsAre("--"));
  EXPECT_THAT(Pieces(SplitBehavior::kRemoved, "--"), ElementsAre());
  EXPECT_THAT(Pieces(SplitBehavior::kIsolated, ""), ElementsAre());
}

TEST(SplitBehaviorTest, AdjoiningGapsStayApartUnlessTheyAreContiguous) {
  EXPECT_THAT(Pieces(SplitBehavior::kMergedWithPrevious, "--a", true), ElementsAre("-", "-a"));
  EXPECT_THAT(Pieces(SplitBehavior::kMergedWithNext, "a--", true), ElementsAre("a-", "-"));
  EXPECT_THAT(Pieces(SplitBehavior::kContiguous, "a--", true), ElementsAre("a", "--"));
  EXPECT_THAT(Pieces(SplitBehavior::kRemoved, "a--b", true), ElementsAre("-", "-"));
}

TEST(SplitBehaviorTest, NamesAreThoseOfTheFile) {
  EXPECT_EQ(SplitBehaviorOf("Removed"), SplitBehavior::kRemoved);
  EXPECT_EQ(SplitBehaviorOf("Isolated"), SplitBehavior::kIsolated);
  EXPECT_EQ(SplitBehaviorOf("Contiguous"), SplitBehavior::kContiguous);
  EXPECT_EQ(SplitBehaviorOf("MergedWithPrevious"), SplitBehavior::kMergedWithPrevious);
  EXPECT_EQ(SplitBehaviorOf("MergedWithNext"), SplitBehavior::kMergedWithNext);
  EXPECT_EQ(SplitBehaviorOf("isolated"), std::nullopt);
}

}  // namespace
}  // namespace muster
