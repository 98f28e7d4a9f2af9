#include "trainer/text/tokenizer/normalizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/json.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
namespace step = normalizer_step;

std::string Normalized(const char* json, std::string_view text) {
  const auto normalizer = Normalizer::Create(nlohmann::json::parse(json));
  EXPECT_TRUE(normalizer.ok()) << normalizer.status().ToString();
  return normalizer.ok() ? normalizer->Run(text) : std::string();
}

TEST(NormalizerTest, WithoutStepsTextsStayAsTheyAre) {
  EXPECT_EQ(Normalized("null", " A\u0301 "), " A\u0301 ");
  EXPECT_TRUE(Normalizer::Create(nullptr)->empty());
  EXPECT_FALSE(Normalizer::Create(nlohmann::json::parse(R"({"type": "NFC"})"))->empty());
}

TEST(NormalizerTest, KnowsTheNormalForms) {
  const std::string text = "\u00e9\ufb01";
  EXPECT_EQ(Normalized(R"({"type": "NFC"})", text), text);
  EXPECT_EQ(Normalized(R"({"type": "NFD"})", text), "e\u0301\ufb01");
  EXPECT_EQ(Normalized(R"({"type": "NFKC"})", text), "\u00e9fi");
  EXPECT_EQ(Normalized(R"({"type": "NFKD"})", text), "e\u0301fi");
}

TEST(NormalizerTest, LowersAndStrips) {
  EXPECT_EQ(Normalized(R"({"type": "Lowercase"})", "A \u00c4"), "a \u00e4");
  constexpr char kBoth[] = R"({"type": "Strip", "strip_left": true, "strip_right": true})";
  constexpr char kLeft[] = R"({"type": "Strip", "strip_left": true, "strip_right": false})";
  constexpr char kRight[] = R"({"type": "Strip", "strip_left": false, "strip_right": true})";
  EXPECT_EQ(Normalized(kBoth, "\u3000 a b\t"), "a b");
  EXPECT_EQ(Normalized(kLeft, " a "), "a ");
  EXPECT_EQ(Normalized(kRight, " a "), " a");
  EXPECT_EQ(Normalized(kBoth, " \n"), "");
}

TEST(NormalizerTest, PrependsToWhatIsNotEmpty) {
  constexpr char kJson[] = R"({"type": "Prepend", "prepend": "_"})";
  EXPECT_EQ(Normalized(kJson, "a"), "_a");
  EXPECT_EQ(Normalized(kJson, "_a"), "__a");
  EXPECT_EQ(Normalized(kJson, ""), "");
}

TEST(NormalizerTest, PrependsNothingToATextThatIsContinued) {
  const auto normalizer =
      Normalizer::Create(nlohmann::json::parse(R"({"type": "Prepend", "prepend": "_"})"));
  EXPECT_EQ(normalizer->Run("a", TextPlace::kContinued), "a");
  EXPECT_EQ(normalizer->Run("a", TextPlace::kInside), "_a");
}

TEST(NormalizerTest, ReplacesTextsAndPatterns) {
  EXPECT_EQ(
      Normalized(R"({"type": "Replace", "pattern": {"String": "a."}, "content": "x"})", "a.ab"),
      "xab");
  EXPECT_EQ(Normalized(R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})",
                       "a   b c  "),
            "a b c ");
}

TEST(NormalizerTest, StepsFollowEachOther) {
  EXPECT_EQ(Normalized(R"({"type": "Sequence", "normalizers": [
                           {"type": "Prepend", "prepend": "▁"},
                           {"type": "Sequence", "normalizers": []},
                           {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})",
                       "a b"),
            "▁a▁b");
}

TEST(NormalizerTest, SentencePieceTakesAwayExtraBlanks) {
  std::vector<NormalizerStep> steps;
  steps.emplace_back(step::CollapseBlanks{});
  steps.emplace_back(step::TrimEnd{" "});
  const Normalizer normalizer(std::move(steps));
  EXPECT_EQ(normalizer.Run("  a   b c  "), "a b c");
  EXPECT_EQ(normalizer.Run("   "), "");
  EXPECT_EQ(normalizer.Run("a\t\tb"), "a\t\tb");
}

TEST(NormalizerTest, OtherStepsAreRefusedByName) {
  const struct {
    const char* json;
    const char* message;
  } cases[] = {
      {R"({"type": "BertNormalizer"})", "BertNormalizer"},
      {R"({"type": "Precompiled"})", "Precompiled"},
      {R"({"kind": "NFC"})", "without a type"},
      {R"({"type": "Sequence", "normalizers": [{"type": "StripAccents"}]})", "StripAccents"},
      {R"({"type": "Replace", "pattern": {"Regex": "x*"}, "content": ""})", "x*"},
      {R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})", "empty"},
      {R"({"type": "Replace", "pattern": {"Regex": "\\w"}, "content": ""})", "\\w"},
  };
  for (const auto& c : cases) {
    const auto normalizer = Normalizer::Create(nlohmann::json::parse(c.json));
    ASSERT_FALSE(normalizer.ok()) << c.json;
    EXPECT_EQ(normalizer.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(normalizer.status().message(), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace muster
