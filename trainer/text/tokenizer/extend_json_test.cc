#include "trainer/text/tokenizer/extend_json.h"

#include <gtest/gtest.h>

#include "common/base/json.h"
#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kTokenizer[] = R"({
  "version": "1.0",
  "added_tokens": [{"id": 3, "content": "<s>", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true}],
  "normalizer": null,
  "pre_tokenizer": null,
  "post_processor": null,
  "decoder": null,
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "é": 4}, "merges": ["a b"],
            "unk_token": null}})";

TEST(ExtendTokenizerJson, NewTokensHaveTheIdsBehindTheLargest) {
  const auto extended =
      ExtendTokenizerJson(kTokenizer, {{"<|x|>"}, {"<tool>", false}}, "tokenizer.json");
  ASSERT_TRUE(extended.ok()) << extended.status().ToString();
  EXPECT_EQ(extended->vocab_size, 7);
  ASSERT_EQ(extended->added.size(), 2u);
  EXPECT_EQ(extended->added[0].id, 5);
  EXPECT_EQ(extended->added[1].content, "<tool>");
  const auto tokenizer = Tokenizer::Parse(extended->json, "x");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_EQ(tokenizer->Encode("ab<|x|>a<tool>é"), (std::vector<std::int32_t>{2, 5, 0, 6, 4}));
  EXPECT_EQ(tokenizer->Decode({5, 0, 6}, {.skip_special_tokens = true}), "a <tool>");
}

// Down to the order of the keys.
TEST(ExtendTokenizerJson, WritesTokensAsTransformersDoes) {
  const auto extended = ExtendTokenizerJson(kTokenizer, {{"<|x|>"}, {"<t>", false}}, "f");
  ASSERT_TRUE(extended.ok()) << extended.status().ToString();
  const Json list = Json::parse(extended->json)["added_tokens"];
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].dump(), Json::parse(kTokenizer)["added_tokens"][0].dump());
  EXPECT_EQ(list[1].dump(),
            R"({"id":5,"content":"<|x|>","single_word":false,"lstrip":false,"rstrip":false,)"
            R"("normalized":false,"special":true})");
  EXPECT_EQ(list[2].dump(),
            R"({"id":6,"content":"<t>","single_word":false,"lstrip":false,"rstrip":false,)"
            R"("normalized":true,"special":false})");
  const std::string keys = Json::parse(extended->json).dump();
  EXPECT_LT(keys.find("version"), keys.find("added_tokens"));
  EXPECT_LT(keys.find("decoder"), keys.find("model"));
}

TEST(ExtendTokenizerJson, WhatTheTokenizerHasKeepsItsId) {
  const auto extended = ExtendTokenizerJson(kTokenizer, {{"<s>"}, {"ab"}, {"<x>"}, {"<x>"}}, "f");
  ASSERT_TRUE(extended.ok()) << extended.status().ToString();
  EXPECT_EQ(extended->vocab_size, 6);
  ASSERT_EQ(extended->added.size(), 2u);
  EXPECT_EQ(extended->added[0].id, 2);
  const Json list = Json::parse(extended->json)["added_tokens"];
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0]["id"], 2) << "in the order of ids";
  EXPECT_EQ(list[2]["content"], "<x>");
  const auto nothing = ExtendTokenizerJson(kTokenizer, {{"<s>"}}, "f");
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->json, kTokenizer) << "as it was, byte for byte";
}

TEST(ExtendTokenizerJson, RefusesWhatIsNoTokenOrNoTokenizer) {
  EXPECT_NE(ExtendTokenizerJson(kTokenizer, {{""}}, "f").status().message().find("f: a new token"),
            std::string::npos);
  EXPECT_NE(ExtendTokenizerJson(kTokenizer, {{"\xff"}}, "f").status().message().find("not UTF-8"),
            std::string::npos);
  EXPECT_FALSE(ExtendTokenizerJson("{}", {{"<x>"}}, "f").ok());
  EXPECT_FALSE(ExtendTokenizerJson("no json", {{"<x>"}}, "f").ok());
}

TEST(ExtendTokenizerConfig, HasAllAddedTokensInItsDecoder) {
  const auto extended = ExtendTokenizerJson(kTokenizer, {{"<|x|>"}}, "f");
  ASSERT_TRUE(extended.ok());
  const auto config = ExtendTokenizerConfig(
      R"({"tokenizer_class": "T", "added_tokens_decoder": {"3": {"content": "<s>", "mine": 1}},
          "model_max_length": 100})",
      extended->json, "c");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const Json json = Json::parse(*config);
  EXPECT_EQ(json["added_tokens_decoder"]["3"]["mine"], 1);
  EXPECT_EQ(json["added_tokens_decoder"]["5"].dump(),
            R"({"content":"<|x|>","lstrip":false,"normalized":false,"rstrip":false,)"
            R"("single_word":false,"special":true})");
  EXPECT_EQ(json["model_max_length"], 100);
  const auto without = ExtendTokenizerConfig("{}", extended->json, "c");
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(Json::parse(*without)["added_tokens_decoder"].size(), 2u);
  EXPECT_EQ(ExtendTokenizerConfig("[]", extended->json, "c").status().message(),
            "c holds no JSON object");
  EXPECT_FALSE(ExtendTokenizerConfig(R"({"added_tokens_decoder": 1})", extended->json, "c").ok());
}

}  // namespace
}  // namespace muster
