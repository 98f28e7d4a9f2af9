#include "trainer/text/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/json.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Pieces(const char* json, std::string_view text,
                                TextPlace place = TextPlace::kStart) {
  const auto pre_tokenizer = PreTokenizer::Create(nlohmann::json::parse(json));
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status().ToString();
  std::vector<std::string> pieces;
  if (pre_tokenizer.ok())
    pre_tokenizer->Run(text, place, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

TEST(PreTokenizerTest, WithoutStepsATextIsOnePiece) {
  EXPECT_THAT(Pieces("null", "a b"), ElementsAre("a b"));
  EXPECT_THAT(Pieces("null", ""), ElementsAre());
  EXPECT_FALSE(PreTokenizer::Create(nullptr)->byte_level());
}

TEST(PreTokenizerTest, ByteLevelIsTheLastStep) {
  const auto byte_level = PreTokenizer::Create(nlohmann::json::parse(R"({"type": "ByteLevel"})"));
  EXPECT_TRUE(byte_level->byte_level());
  EXPECT_THAT(Pieces(R"({"type": "ByteLevel"})", "I'm 12"), ElementsAre(" I", "'m", " 12"));
  EXPECT_THAT(
      Pieces(R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})", "I'm 12"),
      ElementsAre("I'm 12"));
  const auto after = PreTokenizer::Create(nlohmann::json::parse(
      R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})"));
  ASSERT_FALSE(after.ok());
  EXPECT_THAT(after.status().message(), HasSubstr("Digits"));
}

TEST(PreTokenizerTest, SplitsAtPatterns) {
  EXPECT_THAT(Pieces(R"({"type": "Split", "pattern": {"String": "."}, "behavior": "Isolated",
                         "invert": false})",
                     "a.b"),
              ElementsAre("a", ".", "b"));
  EXPECT_THAT(Pieces(R"({"type": "Split", "pattern": {"Regex": "[0-9]+"},
                         "behavior": "MergedWithPrevious", "invert": false})",
                     "a12b3c"),
              ElementsAre("a12", "b3", "c"));
  EXPECT_THAT(Pieces(R"({"type": "Split", "pattern": {"Regex": "[a-z]+"}, "behavior": "Removed",
                         "invert": true})",
                     "ab12cd"),
              ElementsAre("ab", "cd"));
}

TEST(PreTokenizerTest, SplitsAtDigits) {
  EXPECT_THAT(Pieces(R"({"type": "Digits"})", "a12½b"), ElementsAre("a", "12½", "b"));
  EXPECT_THAT(Pieces(R"({"type": "Digits", "individual_digits": true})", "a12b"),
              ElementsAre("a", "1", "2", "b"));
}

TEST(PreTokenizerTest, SplitsAtWhiteSpaceAndPunctuation) {
  EXPECT_THAT(Pieces(R"({"type": "WhitespaceSplit"})", " a,\u3000b\n"), ElementsAre("a,", "b"));
  EXPECT_THAT(Pieces(R"({"type": "Whitespace"})", " don't... ü_1\t"),
              ElementsAre("don", "'", "t", "...", "ü_1"));
  EXPECT_THAT(Pieces(R"({"type": "Punctuation"})", "a!?b$"), ElementsAre("a", "!", "?", "b", "$"));
  EXPECT_THAT(Pieces(R"({"type": "Punctuation", "behavior": "Contiguous"})", "a!?b。"),
              ElementsAre("a", "!?", "b", "。"));
}

TEST(PreTokenizerTest, MetaspaceMarksBlanks) {
  EXPECT_THAT(Pieces(R"({"type": "Metaspace", "replacement": "_"})", "a  b"),
              ElementsAre("_a", "_", "_b"));
  EXPECT_THAT(Pieces(R"({"type": "Metaspace", "replacement": "▁", "split": false})", "a  b"),
              ElementsAre("▁a▁▁b"));
  EXPECT_THAT(Pieces(R"({"type": "Metaspace", "replacement": "▁"})", " a"), ElementsAre("▁a"));
  EXPECT_THAT(
      Pieces(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})", "a b"),
      ElementsAre("a", "▁b"));
  EXPECT_THAT(
      Pieces(R"({"type": "Metaspace", "replacement": "▁", "add_prefix_space": false})", "a b"),
      ElementsAre("a", "▁b"));
}

TEST(PreTokenizerTest, MetaspaceMayMarkTheFirstPieceOfTheInputOnly) {
  constexpr char kFirst[] =
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false})";
  EXPECT_THAT(Pieces(kFirst, "a b"), ElementsAre("▁a▁b"));
  EXPECT_THAT(Pieces(kFirst, "a b", TextPlace::kInside), ElementsAre("a▁b"));
  EXPECT_TRUE(PreTokenizer::Create(nlohmann::json::parse(kFirst))->needs_position());
  const std::string digits_before =
      R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"}, )" + std::string(kFirst) + "]}";
  EXPECT_THAT(Pieces(digits_before.c_str(), "1a2"), ElementsAre("▁1", "a", "2"));
  const std::string blanks_before =
      R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, )" +
      std::string(kFirst) + "]}";
  EXPECT_THAT(Pieces(blanks_before.c_str(), " a b"), ElementsAre("a", "b"));
}

TEST(PreTokenizerTest, NothingIsPutInFrontOfATextThatIsContinued) {
  constexpr char kAlways[] = R"({"type": "Metaspace", "replacement": "▁"})";
  EXPECT_THAT(Pieces(kAlways, "a b", TextPlace::kInside), ElementsAre("▁a", "▁b"));
  EXPECT_THAT(Pieces(kAlways, "a b", TextPlace::kContinued), ElementsAre("a", "▁b"));
  EXPECT_THAT(Pieces(R"({"type": "ByteLevel"})", "a b", TextPlace::kContinued),
              ElementsAre("a", " b"));
  const std::string digits_before =
      R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"}, )" + std::string(kAlways) +
      "]}";
  EXPECT_THAT(Pieces(digits_before.c_str(), "1a", TextPlace::kContinued), ElementsAre("1", "▁a"));
}

TEST(PreTokenizerTest, WhatItDoesNotKnowIsRefusedByName) {
  const struct {
    const char* json;
    const char* message;
  } cases[] = {
      {R"({"type": "BertPreTokenizer"})", "BertPreTokenizer"},
      {R"({"type": "UnicodeScripts"})", "UnicodeScripts"},
      {R"({})", "without a type"},
      {R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Sideways"})", "Sideways"},
      {R"({"type": "Split", "pattern": {"Regex": "a*"}, "behavior": "Contiguous"})", "a*"},
      {R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})", "last"},
  };
  for (const auto& c : cases) {
    const auto pre_tokenizer = PreTokenizer::Create(nlohmann::json::parse(c.json));
    ASSERT_FALSE(pre_tokenizer.ok()) << c.json;
    EXPECT_EQ(pre_tokenizer.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(pre_tokenizer.status().message(), HasSubstr(c.message));
  }
  const auto contradiction = PreTokenizer::Create(nlohmann::json::parse(
      R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always",
          "add_prefix_space": false})"));
  ASSERT_FALSE(contradiction.ok());
  EXPECT_EQ(contradiction.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster
