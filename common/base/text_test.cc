#include "common/base/text.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(CutTextTest, ShortTextStaysAsItIs) {
  EXPECT_EQ(CutText("", 0), "");
  EXPECT_EQ(CutText("abc", 3), "abc");
  EXPECT_EQ(CutText("█", 3), "█");
}

TEST(CutTextTest, ACharacterIsNeverCutInTwo) {
  const std::string bar = "██";  // three bytes each
  EXPECT_EQ(CutText(bar, 5), "█");
  EXPECT_EQ(CutText(bar, 4), "█");
  EXPECT_EQ(CutText(bar, 3), "█");
  EXPECT_EQ(CutText(bar, 2), "");
  EXPECT_EQ(CutText("aé", 2), "a");
  EXPECT_EQ(CutText("a\xF0\x9F\x98\x80z", 4), "a");
  EXPECT_EQ(CutText("abcdef", 4), "abcd");
}

}  // namespace
}  // namespace muster
