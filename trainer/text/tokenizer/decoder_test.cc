#include "trainer/text/tokenizer/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/json.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
namespace step = decoder_step;

#define FFFD "\xef\xbf\xbd"

Decoder Only(DecoderStep step) {
  std::vector<DecoderStep> steps;
  steps.push_back(std::move(step));
  return Decoder(std::move(steps));
}

std::string Decoded(const char* json, std::vector<std::string> tokens) {
  const auto decoder = Decoder::Create(nlohmann::json::parse(json));
  EXPECT_TRUE(decoder.ok()) << decoder.status().ToString();
  return decoder.ok() ? decoder->Run(std::move(tokens)) : std::string();
}

TEST(DecoderTest, WithoutOneBlanksAreBetweenTheTokens) {
  EXPECT_EQ(Decoded("null", {"a", "", "b"}), "a  b");
  EXPECT_EQ(Decoded("null", {}), "");
}

TEST(DecoderTest, ByteLevelSpellsBytes) {
  EXPECT_EQ(Decoded(R"({"type": "ByteLevel"})", {"Ġa", "Ã", "©", "Ã"}), " aé" FFFD);
}

TEST(DecoderTest, ByteFallbackJoinsRunsOfBytes) {
  constexpr char kJson[] = R"({"type": "ByteFallback"})";
  EXPECT_EQ(Decoded(kJson, {"x", "<0xC3>", "<0xa9>", "y"}), "xéy");
  EXPECT_EQ(Decoded(kJson, {"<0xC3>", "<0xA9>", "<0xC3>"}), FFFD FFFD FFFD);
  EXPECT_EQ(Decoded(kJson, {"<0xC3>", "|", "<0xA9>"}), FFFD "|" FFFD);
  EXPECT_EQ(Decoded(kJson, {"<0xG0>", "<0x0>", "<0x+A>"}), "<0xG0><0x0>\n");
  const Decoder lenient = Only(step::ByteFallback{step::ByteFallback::Broken::kBytes});
  EXPECT_EQ(lenient.Run({"<0xC3>", "<0xA9>", "<0xC3>", "<0x41>"}), "é" FFFD "A");
}

TEST(DecoderTest, TheStepsOfLlama2GiveItsText) {
  constexpr char kJson[] = R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
  EXPECT_EQ(Decoded(kJson, {"▁a", "▁▁b", "<0x0A>"}), "a  b\n");
  EXPECT_EQ(Decoded(kJson, {"▁▁a"}), " a");
  EXPECT_EQ(Decoded(kJson, {}), "");
}

TEST(DecoderTest, StripTakesNoMoreThanThereIs) {
  constexpr char kJson[] = R"({"type": "Strip", "content": "é", "start": 2, "stop": 1})";
  EXPECT_EQ(Decoded(kJson, {"éééaé", "aéé", "é"}), "éaaé");
}

TEST(DecoderTest, MetaspaceDropsTheMarksOfTheFirstToken) {
  EXPECT_EQ(Decoded(R"({"type": "Metaspace", "replacement": "▁"})", {"▁a▁b", "▁c"}), "ab c");
  EXPECT_EQ(
      Decoded(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})", {"▁a"}),
      " a");
}

TEST(DecoderTest, ReplacesByPattern) {
  EXPECT_EQ(
      Decoded(R"({"type": "Replace", "pattern": {"Regex": "a+"}, "content": "x"})", {"aab", "a"}),
      "xbx");
}

TEST(DecoderTest, SentencePieceTakesItsPrefixAway) {
  const Decoder once = Only(step::DropFirstMarks{"▁", false});
  EXPECT_EQ(once.Run({"▁", "▁a"}), "▁a");
  EXPECT_EQ(once.Run({"a", "▁b"}), "a▁b");
  const Decoder all = Only(step::DropFirstMarks{"▁", true});
  EXPECT_EQ(all.Run({"▁", "▁a", "▁b"}), "a▁b");
}

TEST(DecoderTest, OtherStepsAreRefusedByName) {
  for (const char* type : {"WordPiece", "CTC", "BPEDecoder"}) {
    const auto decoder = Decoder::Create({{"type", type}});
    ASSERT_FALSE(decoder.ok());
    EXPECT_EQ(decoder.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(decoder.status().message(), HasSubstr(type));
  }
}

}  // namespace
}  // namespace muster
