#include "trainer/generation/stop_finder.h"

#include <gtest/gtest.h>

#include <random>

namespace muster {
namespace {

TEST(StopFinder, EndsBeforeAStopThatComesInPieces) {
  StopFinder finder({"\n\nUser:"});
  EXPECT_EQ(finder.Add("Yes.\n"), "Yes.");
  EXPECT_EQ(finder.Add("\nUs"), "");
  EXPECT_FALSE(finder.stopped());
  EXPECT_EQ(finder.Add("er: and"), "");
  EXPECT_TRUE(finder.stopped());
  EXPECT_EQ(finder.Add("more"), "");
  EXPECT_EQ(finder.Rest(), "");
}

TEST(StopFinder, GivesBackWhatOnlyLookedLikeAStop) {
  StopFinder finder({"abab!"});
  EXPECT_EQ(finder.Add("xaba"), "x");
  EXPECT_EQ(finder.Add("ba"), "ab") << "the end may still begin a stop";
  EXPECT_EQ(finder.Add("c"), "abac");
  EXPECT_EQ(finder.Add("ab"), "");
  EXPECT_EQ(finder.Rest(), "ab");
}

TEST(StopFinder, TakesTheStopThatComesFirst) {
  StopFinder finder({"end", "stop", ""});
  EXPECT_EQ(finder.Add("a stop, an end"), "a ");
  EXPECT_TRUE(finder.stopped());
}

TEST(StopFinder, DoesNotDependOnHowTheTextIsCut) {
  const std::string text = "aabbaababbaabbbabaaabab";
  std::mt19937 random(7);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string stop;
    for (unsigned size = 1 + random() % 6; size > 0; --size) stop += "ab"[random() % 2];
    StopFinder finder({stop});
    std::string got;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + random() % 4;
      got += finder.Add(std::string_view(text).substr(at, size));
      at += size;
    }
    const std::size_t found = text.find(stop);
    EXPECT_EQ(finder.stopped(), found != std::string::npos);
    EXPECT_EQ(got + finder.Rest(), text.substr(0, found)) << stop;
  }
}

}  // namespace
}  // namespace muster
