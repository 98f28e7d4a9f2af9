#include "trainer/text/chat/chat_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "trainer/text/tokenizer/byte_alphabet.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

constexpr std::int32_t kBlankA = 256;     // " a"
constexpr std::int32_t kTwoBreaks = 257;  // "\n\n"
constexpr std::int32_t kInst = 258;
constexpr std::int32_t kPad = 259;  // takes the blanks in front of it

// Bytes by value, two merges and two added tokens.
Tokenizer TestTokenizer() {
  std::string vocab;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::string& spelling = ByteAlphabet()[byte];
    vocab += (byte == '"' || byte == '\\' ? "\"\\" : "\"") + spelling +
             "\":" + std::to_string(byte) + ",";
  }
  auto tokenizer =
      Tokenizer::Parse(R"({"model": {"type": "BPE", "vocab": {)" + vocab + R"("Ġa": 256, "ĊĊ": 257},
          "merges": ["Ġ a", "Ċ Ċ"]},
          "added_tokens": [{"id": 258, "content": "[INST]", "special": true},
                           {"id": 259, "content": "<pad>", "special": true, "lstrip": true}],
          "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}})",
                       "test");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

EncodedChat Encoded(const std::vector<ChatSegment>& segments) {
  static const Tokenizer tokenizer = TestTokenizer();
  ChatEncoder encoder(tokenizer);
  for (const ChatSegment& segment : segments) encoder.Add(segment);
  return encoder.Take();
}

TEST(ChatEncoderTest, TokensReachOverTheBorderOfContent) {
  EXPECT_THAT(Encoded({{"[INST] ", false, true}, {"a", false, false}}).ids,
              ElementsAre(kInst, kBlankA));
  EXPECT_THAT(Encoded({{"x\n", false, true}, {"\ny", false, false}}).ids,
              ElementsAre('x', kTwoBreaks, 'y'));
}

TEST(ChatEncoderTest, TokensEndWhereTrainingBeginsAndEnds) {
  const EncodedChat chat =
      Encoded({{" ", false, true}, {"a", true, false}, {"[INST]", true, true}});
  EXPECT_THAT(chat.ids, ElementsAre(' ', 'a', kInst));
  EXPECT_THAT(chat.trained, ElementsAre(0, 1, 1));
}

TEST(ChatEncoderTest, ContentHasNoAddedTokensNotEvenHalfOfOne) {
  EXPECT_THAT(Encoded({{"[INST]", false, false}}).ids, ElementsAre('[', 'I', 'N', 'S', 'T', ']'));
  EXPECT_THAT(Encoded({{"[IN", false, true}, {"ST]", false, false}}).ids,
              ElementsAre('[', 'I', 'N', 'S', 'T', ']'));
  EXPECT_THAT(Encoded({{"[IN", false, false}, {"ST]", false, true}}).ids,
              ElementsAre('[', 'I', 'N', 'S', 'T', ']'));
}

TEST(ChatEncoderTest, MarkupWhoseTokensTakeBlanksKeepsItsIds) {
  EXPECT_THAT(Encoded({{"x <pad>y", false, true}, {" a", false, false}}).ids,
              ElementsAre('x', kPad, 'y', kBlankA));
  EXPECT_THAT(Encoded({{"", false, true}}).ids, ElementsAre());
}

// For every kind of tokenizer: those that put a blank in front of a text, in front of each piece,
// or nowhere.
TEST(ChatEncoderTest, WithoutForgedMarkupTheIdsAreThoseOfTheWholeText) {
  for (const char* kind :
       {"gpt2", "llama2", "llama2_metaspace", "llama3", "mistral", "mistral_always", "qwen2",
        "qwen3", "smollm2", "gpt_neox", "o200k", "gemma", "phi3", "phi4"}) {
    const auto json = ReadFile(std::string(MUSTER_TOKENIZERS) + "/" + kind + ".tokenizer.json");
    ASSERT_TRUE(json.ok()) << json.status().ToString();
    const auto tokenizer = Tokenizer::Parse(*json, kind);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    const std::string end = tokenizer->TokenId("</s>") ? "</s>" : "<|im_end|>";
    ASSERT_TRUE(tokenizer->TokenId(end)) << kind;
    const std::vector<ChatSegment> segments = {
        {end + "[INST] ", false, true},   {"Hello\n", false, false},
        {" [/INST]", false, true},        {" Grüße  ", false, false},
        {end + "\n", false, true},        {"\nmore", false, false},
        {" " + end, false, true},         {"the end", false, false},
        {end + end, false, true},         {"if:\n\n\n        pass\n", false, false},
        {"\n" + end + "\n", false, true}, {" blank first", false, false}};
    ChatEncoder encoder(*tokenizer);
    std::string whole;
    for (const ChatSegment& segment : segments) {
      encoder.Add(segment);
      whole += segment.text;
    }
    EXPECT_EQ(encoder.Take().ids, tokenizer->Encode(whole)) << kind;
  }
}

}  // namespace
}  // namespace muster
