#include "trainer/text/tokenizer/utf8.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

#define FFFD "\xef\xbf\xbd"

TEST(Utf8Test, InvalidSequencesAreReplacedAsTheStandardsSay) {
  const struct {
    std::string text;
    std::string expected;
  } cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80", "\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80"},
      {"\x80", FFFD},
      {"a\xff\xfe"
       "b",
       "a" FFFD FFFD "b"},
      {"\xc3", FFFD},
      {"\xe6\x97", FFFD},
      {"\xe6\x97x", FFFD "x"},
      {"\xf0\x9f\x98", FFFD},
      {"\xf0\x9f\x98\xf0\x9f\x98\x80", FFFD "\xf0\x9f\x98\x80"},
      {"\xc0\xaf", FFFD FFFD},                    // overlong
      {"\xe0\x80\xaf", FFFD FFFD FFFD},           // overlong
      {"\xed\xa0\x80", FFFD FFFD FFFD},           // surrogate
      {"\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD},  // beyond U+10FFFF
      {"\xf5\x80", FFFD FFFD},
      {std::string("a\0b", 3), std::string("a\0b", 3)},
  };
  for (const auto& c : cases) EXPECT_EQ(ReplaceInvalidUtf8(c.text), c.expected);
}

TEST(Utf8Test, EveryCodePointSurvivesTheRoundTrip) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string text;
    AppendUtf8(c, &text);
    const Utf8Char decoded = DecodeUtf8(text);
    ASSERT_TRUE(decoded.valid);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(static_cast<std::size_t>(decoded.length), text.size());
  }
}

TEST(Utf8Test, ComposesToNfc) {
  EXPECT_EQ(NormalizeUtf8("e\xcc\x81", NormalForm::kNfc), "\xc3\xa9");
  EXPECT_EQ(NormalizeUtf8(std::string("a\0e\xcc\x81", 5), NormalForm::kNfc),
            std::string("a\0\xc3\xa9", 4));
  EXPECT_EQ(NormalizeUtf8("", NormalForm::kNfc), "");
}

TEST(Utf8Test, KnowsTheFourNormalForms) {
  const std::string text = "\u00e9\ufb01\u00bd";  // e with acute, ligature fi, one half
  EXPECT_EQ(NormalizeUtf8(text, NormalForm::kNfc), text);
  EXPECT_EQ(NormalizeUtf8(text, NormalForm::kNfd), "e\u0301\ufb01\u00bd");
  EXPECT_EQ(NormalizeUtf8(text, NormalForm::kNfkc), "\u00e9fi1\u20442");
  EXPECT_EQ(NormalizeUtf8(text, NormalForm::kNfkd), "e\u0301fi1\u20442");
}

TEST(Utf8Test, LowersCharacterByCharacter) {
  EXPECT_EQ(LowerUtf8("ABC \u00c4\u0416 \u03a3\u03a3"), "abc \u00e4\u0436 \u03c3\u03c3");
  EXPECT_EQ(LowerUtf8("\u0130"), "i\u0307");
}

TEST(Utf8Test, ReplacesFromLeftToRight) {
  EXPECT_EQ(ReplaceAll("aaa b", "aa", "x"), "xa b");
  EXPECT_EQ(ReplaceAll("a b c", " ", "\u2581"), "a\u2581b\u2581c");
  EXPECT_EQ(ReplaceAll("", "a", "b"), "");
}

TEST(Utf8Test, FindsTheLastCharacter) {
  EXPECT_EQ(LastUtf8("a").code_point, U'a');
  EXPECT_EQ(LastUtf8("a\u6f22").code_point, 0x6f22u);
}

TEST(Utf8Test, KnowsClassesOfCharacters) {
  EXPECT_TRUE(IsUnicodeSpace(0x3000));
  EXPECT_FALSE(IsUnicodeSpace(0x180e));
  EXPECT_FALSE(IsUnicodeSpace(0x200b));
  EXPECT_TRUE(IsUnicodeNumeric(0x0661));
  EXPECT_TRUE(IsUnicodeNumeric(0x00bd));
  EXPECT_FALSE(IsUnicodeNumeric('a'));
  EXPECT_TRUE(IsUnicodeWord('_'));
  EXPECT_TRUE(IsUnicodeWord(0x6f22));
  EXPECT_FALSE(IsUnicodeWord('-'));
  EXPECT_TRUE(IsUnicodeWord(0x200d));
  EXPECT_TRUE(IsUnicodeWord(0x24b6));
  EXPECT_FALSE(IsUnicodeWord(0xbd));
  EXPECT_TRUE(IsUnicodePunctuation('$'));
  EXPECT_TRUE(IsUnicodePunctuation(0x3001));
  EXPECT_FALSE(IsUnicodePunctuation(0x20ac));
}

TEST(Utf8Test, MeasuresWhiteSpaceAtTheEnds) {
  EXPECT_EQ(SpacesAtBegin("\n\u3000 a \t"), 5u);
  EXPECT_EQ(SpacesAtEnd("\n\u3000 a \u00a0"), 3u);
  EXPECT_EQ(SpacesAtBegin("a "), 0u);
  EXPECT_EQ(SpacesAtEnd(" a"), 0u);
  EXPECT_EQ(SpacesAtBegin(" \u2028"), 4u);
  EXPECT_EQ(SpacesAtEnd(""), 0u);
}

}  // namespace
}  // namespace muster
