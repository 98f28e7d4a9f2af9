#include "trainer/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/formats/temp_dir.h"
#include "trainer/tokenizer/utf8.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// All bytes by value, then "he" 256, "ll" 257, "hell" 258, "Ġt" 259, and "<s>" 260.
Json SmallTokenizer() {
  Json vocab = Json::object();
  for (std::size_t byte = 0; byte < 256; ++byte) vocab[ByteAlphabet()[byte]] = byte;
  vocab["he"] = 256;
  vocab["ll"] = 257;
  vocab["hell"] = 258;
  vocab["Ġt"] = 259;
  return {
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h e", "l l", "he ll", "Ġ t"}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"added_tokens", {{{"id", 260}, {"content", "<s>"}, {"special", true}}}}};
}

Result<Tokenizer> Parse(const Json& json) { return Tokenizer::Parse(json.dump(), "t.json"); }

TEST(TokenizerTest, MergesByRankAndFindsAddedTokens) {
  const auto tokenizer = Parse(SmallTokenizer());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_THAT(tokenizer->Encode("hello the"), ElementsAre(258, 'o', 259, 256));
  EXPECT_THAT(tokenizer->Encode("he<s>llo"), ElementsAre(256, 260, 257, 'o'));
  EXPECT_THAT(tokenizer->Encode("<s>", {.parse_added_tokens = false}), ElementsAre('<', 's', '>'));
  EXPECT_EQ(tokenizer->vocab_size(), 261);
  EXPECT_EQ(tokenizer->TokenId("hell"), 258);
  EXPECT_EQ(tokenizer->TokenId("<s>"), 260);
  EXPECT_EQ(tokenizer->TokenId("nowhere"), std::nullopt);
  EXPECT_EQ(tokenizer->TokenText(259), "Ġt");
  EXPECT_EQ(tokenizer->TokenText(-1), "");
  EXPECT_EQ(tokenizer->TokenText(261), "");
}

TEST(TokenizerTest, MergesMayBePairs) {
  Json json = SmallTokenizer();
  json["model"]["merges"] = Json::parse(R"([["h", "e"], ["l", "l"], ["he", "ll"]])");
  const auto tokenizer = Parse(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_THAT(tokenizer->Encode("hello"), ElementsAre(258, 'o'));
}

TEST(TokenizerTest, AWholeTokenNeedsNoMergesWhereTheyAreIgnored) {
  Json json = SmallTokenizer();
  json["model"]["merges"] = Json::array();
  EXPECT_THAT(Parse(json)->Encode("hell"), ElementsAre('h', 'e', 'l', 'l'));
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(Parse(json)->Encode("hell"), ElementsAre(258));
}

TEST(TokenizerTest, BytesOutsideOfTheVocabularyAreUnknownOrLeftOut) {
  Json json = SmallTokenizer();
  json["model"]["vocab"].erase("x");
  json["model"]["vocab"]["[unk]"] = 'x';
  EXPECT_THAT(Parse(json)->Encode("axxb"), ElementsAre('a', 'b'));
  json["model"]["unk_token"] = "[unk]";
  EXPECT_THAT(Parse(json)->Encode("axxb"), ElementsAre('a', 'x', 'x', 'b'));
  json["model"]["fuse_unk"] = true;
  EXPECT_THAT(Parse(json)->Encode("axxb"), ElementsAre('a', 'x', 'b'));
}

TEST(TokenizerTest, DecodesWhateverIds) {
  const auto tokenizer = Parse(SmallTokenizer());
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->Decode({258, 'o', 260}), "hello<s>");
  EXPECT_EQ(tokenizer->Decode({258, 'o', 260}, {.skip_special_tokens = true}), "hello");
  EXPECT_EQ(tokenizer->Decode({-5, 'a', 4000, 2147483647}), "a");
  EXPECT_EQ(tokenizer->Decode({0xe6, 0x97}), "\xef\xbf\xbd");
}

TEST(TokenizerTest, EveryTextSurvivesTheRoundTrip) {
  const auto tokenizer = Parse(SmallTokenizer());
  ASSERT_TRUE(tokenizer.ok());
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 60, '\0');
    for (char& byte : bytes)
      byte = static_cast<char>(random() % 3 == 0 ? random() : random() % 128);
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(bytes)), ReplaceInvalidUtf8(bytes));
  }
}

TEST(TokenizerTest, TheTemplateSurroundsTheText) {
  Json json = SmallTokenizer();
  json["post_processor"] = Json::parse(
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
          {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 0}}],
          "special_tokens": {"<s>": {"id": "<s>", "ids": [260], "tokens": ["<s>"]}}})");
  const auto tokenizer = Parse(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_THAT(tokenizer->Encode("a"), ElementsAre('a'));
  EXPECT_THAT(tokenizer->Encode("a", {.add_special_tokens = true}), ElementsAre(260, 'a', 260));
  EXPECT_THAT(tokenizer->Prefix(), ElementsAre(260));
  EXPECT_THAT(tokenizer->Suffix(), ElementsAre(260));
}

TEST(TokenizerTest, LongTextsTakeNoLongerThanTheyShould) {
  const auto tokenizer = Parse(SmallTokenizer());
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->Encode(std::string(200'000, 'l')).size(), 100'000u);
}

struct BadTokenizer {
  const char* what;
  const char* patch;  // merged into the small tokenizer (RFC 7386)
  StatusCode code;
  const char* message;
};

class BadTokenizerTest : public ::testing::TestWithParam<BadTokenizer> {};

TEST_P(BadTokenizerTest, IsRefusedByName) {
  Json json = SmallTokenizer();
  json.merge_patch(Json::parse(GetParam().patch));
  const auto tokenizer = Parse(json);
  ASSERT_FALSE(tokenizer.ok()) << GetParam().what;
  EXPECT_EQ(tokenizer.status().code(), GetParam().code) << tokenizer.status().message();
  EXPECT_THAT(tokenizer.status().message(), HasSubstr(GetParam().message));
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("t.json"));
}

constexpr StatusCode kNotYet = StatusCode::kUnimplemented;
constexpr StatusCode kWrong = StatusCode::kInvalidArgument;

INSTANTIATE_TEST_SUITE_P(
    All, BadTokenizerTest,
    ::testing::Values(
        BadTokenizer{"word pieces", R"({"model": {"type": "WordPiece"}})", kNotYet, "WordPiece"},
        BadTokenizer{"unigram", R"({"model": {"type": "Unigram"}})", kNotYet, "Unigram"},
        BadTokenizer{"byte fallback", R"({"model": {"byte_fallback": true}})", kNotYet,
                     "byte_fallback"},
        BadTokenizer{"dropout", R"({"model": {"dropout": 0.1}})", kNotYet, "dropout"},
        BadTokenizer{"suffix", R"({"model": {"end_of_word_suffix": "</w>"}})", kNotYet,
                     "end_of_word_suffix"},
        BadTokenizer{"no model", R"({"model": null})", kWrong, "no tokenizer model"},
        BadTokenizer{"no vocab", R"({"model": {"vocab": null}})", kWrong, "vocab"},
        BadTokenizer{"vocab list", R"({"model": {"vocab": []}})", kWrong, "model.vocab"},
        BadTokenizer{"negative id", R"({"model": {"vocab": {"a": -1}}})", kWrong, "token a"},
        BadTokenizer{"huge id", R"({"model": {"vocab": {"a": 4294967296}}})", kWrong, "token a"},
        BadTokenizer{"same id", R"({"model": {"vocab": {"a": 98}}})", kWrong, "98 twice"},
        BadTokenizer{"foreign merge", R"({"model": {"merges": ["q u"]}})", kWrong,
                     "needs the token qu"},
        BadTokenizer{"merge of one", R"({"model": {"merges": ["qu"]}})", kWrong, "no pair"},
        BadTokenizer{"merge of numbers", R"({"model": {"merges": [[1, 2]]}})", kWrong, "t.json"},
        BadTokenizer{"lowercase", R"({"normalizer": {"type": "Lowercase"}})", kNotYet, "Lowercase"},
        BadTokenizer{"compatibility form",
                     R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}]}})",
                     kNotYet, "NFKC"},
        BadTokenizer{"metaspace", R"({"pre_tokenizer": {"type": "Metaspace"}})", kNotYet,
                     "Metaspace"},
        BadTokenizer{"no pre-tokenizer", R"({"pre_tokenizer": null})", kNotYet, "ByteLevel"},
        BadTokenizer{"split only",
                     R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"},
                         "behavior": "Isolated", "invert": false}})",
                     kNotYet, "no ByteLevel"},
        BadTokenizer{"merged split",
                     R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"},
                         "behavior": "MergedWithNext", "invert": false}})",
                     kNotYet, "MergedWithNext"},
        BadTokenizer{"step after",
                     R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                         {"type": "ByteLevel"}, {"type": "Digits"}]}})",
                     kNotYet, "Digits"},
        BadTokenizer{"byte fallback decoder", R"({"decoder": {"type": "ByteFallback"}})", kNotYet,
                     "ByteFallback"},
        BadTokenizer{"BERT", R"({"post_processor": {"type": "BertProcessing"}})", kNotYet,
                     "BertProcessing"},
        BadTokenizer{"template without text",
                     R"({"post_processor": {"type": "TemplateProcessing", "single": []}})", kWrong,
                     "without the text"},
        BadTokenizer{"template of unknown tokens",
                     R"({"post_processor": {"type": "TemplateProcessing", "single":
                         [{"SpecialToken": {"id": "x"}}], "special_tokens": {}}})",
                     kWrong, "t.json"},
        BadTokenizer{"added token elsewhere", R"({"added_tokens": [{"id": 5, "content": "he"}]})",
                     kWrong, "added token he"},
        BadTokenizer{"added token without id", R"({"added_tokens": [{"content": "he"}]})", kWrong,
                     "t.json"}),
    [](const auto& info) {
      std::string name = info.param.what;
      std::erase_if(name, [](char c) { return !isalnum(static_cast<unsigned char>(c)); });
      return name;
    });

TEST(TokenizerTest, MalformedFilesAreErrors) {
  for (const char* text : {"", "{", "[]", "null", "\xff"})
    EXPECT_FALSE(Tokenizer::Parse(text, "t.json").ok()) << text;
  TempDir dir;
  const auto missing = Tokenizer::Load(dir.path());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr(dir / "tokenizer.json"));
  dir.Write("tokenizer.model", "x");
  EXPECT_THAT(Tokenizer::Load(dir.path()).status().message(), HasSubstr("SentencePiece"));
}

}  // namespace
}  // namespace muster
