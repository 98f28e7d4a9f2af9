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

TEST(ValidUtf8Test, TextStaysAsItIs) {
  for (const std::string_view text :
       {std::string_view(""), std::string_view("rank 3\n\t\x7F"), std::string_view("a\0b", 3),
        std::string_view("é€😀"), std::string_view("\xC2\x80|\xDF\xBF"),
        std::string_view("\xE0\xA0\x80|\xEF\xBF\xBF"),
        std::string_view("\xED\x9F\xBF|\xEE\x80\x80"), std::string_view("\xF0\x90\x80\x80"),
        std::string_view("\xF4\x8F\xBF\xBF"), std::string_view("\xEF\xBF\xBD")})
    EXPECT_EQ(ValidUtf8(text), text);
}

// "?" stands for U+FFFD.
TEST(ValidUtf8Test, WhatIsNotUtf8IsReplaced) {
  struct Case {
    std::string_view text, expected, what;
  };
  for (const Case& one : {
           Case{"a\x80z", "a?z", "a continuation byte alone"},
           Case{"\xBF\x80", "??", "two of them"},
           Case{"\xC0\xAF", "??", "overlong, 2 bytes"},
           Case{"\xC1\xBF", "??", "overlong, 2 bytes, the last"},
           Case{"\xE0\x80\xAF", "???", "overlong, 3 bytes"},
           Case{"\xE0\x9F\xBF", "???", "overlong, 3 bytes, the last"},
           Case{"\xF0\x80\x80\xAF", "????", "overlong, 4 bytes"},
           Case{"\xF0\x8F\xBF\xBF", "????", "overlong, 4 bytes, the last"},
           Case{"\xED\xA0\x80", "???", "the first surrogate"},
           Case{"\xED\xBF\xBF", "???", "the last surrogate"},
           Case{"\xF4\x90\x80\x80", "????", "above U+10FFFF"},
           Case{"\xF5\x80\x80\x80", "????", "no first byte"},
           Case{"\xFE\xFF", "??", "bytes that UTF-8 does not have"},
           Case{"\xC3", "?", "2 bytes cut short"},
           Case{"\xE2\x82", "?", "3 bytes cut short"},
           Case{"\xF0\x9F\x98", "?", "4 bytes cut short"},
           Case{"\xF0\x9F\x98z", "?z", "4 bytes cut short by a letter"},
           Case{"\xE2\x82\xC3\xA9", "?é", "cut short by another character"},
           Case{"\xE2\xE2\x82\xAC", "?€", "begun twice"},
           Case{"\xC3\x28", "?(", "a letter where it goes on"},
       }) {
    std::string expected;
    for (const char c : one.expected)
      expected += c == '?' ? std::string("\uFFFD") : std::string(1, c);
    EXPECT_EQ(ValidUtf8(one.text), expected) << one.what;
    EXPECT_EQ(ValidUtf8(expected), expected) << one.what;
  }
}

}  // namespace
}  // namespace muster
