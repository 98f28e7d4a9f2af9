#include "trainer/text/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <thread>

#include "common/base/json.h"
#include "common/base/testing/temp_dir.h"
#include "trainer/text/tokenizer/byte_alphabet.h"
#include "trainer/text/tokenizer/utf8.h"

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

// Those that no text can forge.
TEST(TokenizerTest, AddedTokensOfWhiteSpaceAreFoundInAnyText) {
  Json json = SmallTokenizer();
  json["added_tokens"].push_back({{"id", 261}, {"content", "\n\n"}, {"normalized", false}});
  json["added_tokens"].push_back({{"id", 262}, {"content", "    "}, {"normalized", true}});
  json["added_tokens"].push_back({{"id", 263}, {"content", " \t"}, {"special", true}});
  const auto tokenizer = Parse(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  const EncodeOptions content{.parse_added_tokens = false};
  EXPECT_THAT(tokenizer->Encode("o\n\n    <s>", content),
              ElementsAre('o', 261, 262, '<', 's', '>'));
  EXPECT_THAT(tokenizer->Encode("o \t"), ElementsAre('o', 263));
  EXPECT_THAT(tokenizer->Encode("o \t", content), ElementsAre('o', ' ', '\t')) << "a special one";
  EXPECT_TRUE(tokenizer->IsAddedSpace(261));
  for (const std::int32_t id : {260, 263, 256, 264, -1}) EXPECT_FALSE(tokenizer->IsAddedSpace(id));
}

// Pieces differ between the threads, so that a table or cache that both wrote to would show.
TEST(TokenizerTest, ThreadsThatShareTablesEncodeAsOne) {
  auto tokenizer = Parse(SmallTokenizer());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  const auto text_of = [](int i) { return "hello " + std::to_string(i * 7919) + " the<s>"; };
  constexpr int kTexts = 400;
  std::vector<std::vector<std::int32_t>> expected;
  for (int i = 0; i < 2 * kTexts; ++i) expected.push_back(tokenizer->Encode(text_of(i)));
  std::array<int, 2> equal{};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t, mine = tokenizer->Share()] {
      for (int i = t * kTexts; i < (t + 1) * kTexts; ++i)
        equal[t] += mine.Encode(text_of(i)) == expected[i];
    });
  *tokenizer = *Parse(SmallTokenizer());  // the tables outlive the one they came from
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, (std::array<int, 2>{kTexts, kTexts}));
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

// "▁" 0, "a" 1, "▁a" 2, and the added token "<s>" 3.
Json MarkedTokenizer(const char* pre_tokenizer, const char* normalizer) {
  return {{"model",
           {{"type", "BPE"},
            {"vocab", {{"▁", 0}, {"a", 1}, {"▁a", 2}}},
            {"merges", Json::array({"▁ a"})}}},
          {"normalizer", Json::parse(normalizer)},
          {"pre_tokenizer", Json::parse(pre_tokenizer)},
          {"added_tokens", {{{"id", 3}, {"content", "<s>"}, {"special", true}}}}};
}

TEST(TokenizerTest, TheFirstPieceIsTheOneBeforeAllAddedTokens) {
  const auto first = Parse(MarkedTokenizer(
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false})",
      "null"));
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_THAT(first->Encode("a<s>a a"), ElementsAre(2, 3, 1, 2));
  EXPECT_THAT(first->Encode("<s>a"), ElementsAre(3, 1));
  const auto always =
      Parse(MarkedTokenizer(R"({"type": "Metaspace", "replacement": "▁"})", "null"));
  EXPECT_THAT(always->Encode("<s>a"), ElementsAre(3, 2));
}

TEST(TokenizerTest, EveryPartBetweenAddedTokensIsNormalizedByItself) {
  constexpr char kLlama2[] = R"({"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})";
  const auto tokenizer = Parse(MarkedTokenizer("null", kLlama2));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_THAT(tokenizer->Encode("a<s>a a"), ElementsAre(2, 3, 2, 2));
  Json json = MarkedTokenizer("null", kLlama2);
  json["added_tokens"][0]["normalized"] = true;  // then it is "▁<s>" in the normalized text
  EXPECT_THAT(Parse(json)->Encode("a <s>a"), ElementsAre(2, 3, 1));
  EXPECT_THAT(Parse(json)->Encode("a<s>a"), ElementsAre(2, 1));
}

TEST(TokenizerTest, ATextThatIsContinuedHasNothingPutInFront) {
  for (const auto& json :
       {MarkedTokenizer("null", R"({"type": "Prepend", "prepend": "▁"})"),
        MarkedTokenizer(R"({"type": "Metaspace", "replacement": "▁", "split": false})", "null")}) {
    const auto tokenizer = Parse(json);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    EXPECT_THAT(tokenizer->Encode("a"), ElementsAre(2));
    EXPECT_THAT(tokenizer->Encode("a<s>a", {.continues_text = true}), ElementsAre(1, 3, 2));
    EXPECT_TRUE(tokenizer->IsAddedToken(3));
    EXPECT_FALSE(tokenizer->IsAddedToken(2));
    EXPECT_FALSE(tokenizer->IsAddedToken(-1));
    EXPECT_FALSE(tokenizer->IsAddedToken(4));
  }
}

TEST(TokenizerTest, OfTwoTokensThatAreTheSameOnceNormalizedTheSpecialOneCounts) {
  Json json = SmallTokenizer();
  json["normalizer"] = {{"type", "Lowercase"}};
  json["added_tokens"] = {
      {{"id", 261}, {"content", "x1"}, {"normalized", true}},
      {{"id", 262}, {"content", "X1"}, {"normalized", true}, {"special", true}}};
  EXPECT_THAT(Parse(json)->Encode("x1X1"), ElementsAre(262, 262));
}

TEST(TokenizerTest, ATokenThatIsMatchedNormalizedIsDecodedNormalized) {
  Json json = SmallTokenizer();
  json["normalizer"] = {{"type", "Lowercase"}};
  json["added_tokens"] = {
      {{"id", 261}, {"content", "<A>"}, {"normalized", true}},
      {{"id", 262}, {"content", "<B>"}, {"normalized", true}, {"special", true}}};
  const auto tokenizer = Parse(json);
  EXPECT_EQ(tokenizer->Decode({261, 262, 'c'}), "<a><b>c");
  EXPECT_EQ(tokenizer->Decode({261, 262, 'c'}, {.skip_special_tokens = true}), "<a>c");
  EXPECT_EQ(tokenizer->TokenText(261), "<A>");
}

TEST(TokenizerTest, ATokenMayBeginWithTheBlankThatAnotherTakesAlong) {
  Json json = SmallTokenizer();
  json["added_tokens"] = {
      {{"id", 261}, {"content", "<m>"}, {"normalized", false}, {"rstrip", true}},
      {{"id", 262}, {"content", " x"}, {"normalized", false}},
      {{"id", 263}, {"content", "<l>"}, {"normalized", false}, {"lstrip", true}}};
  EXPECT_THAT(Parse(json)->Encode("<m> xa"), ElementsAre(261, 262, 'a'));
  EXPECT_THAT(Parse(json)->Encode("<m>  <l>"), ElementsAre(261, 263));
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
        BadTokenizer{"unknown token elsewhere",
                     R"({"model": {"unk_token": "[unk]"}, "pre_tokenizer": null})", kWrong,
                     "[unk] is not in the vocabulary"},
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
        BadTokenizer{"accents", R"({"normalizer": {"type": "StripAccents"}})", kNotYet,
                     "StripAccents"},
        BadTokenizer{
            "precompiled",
            R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Precompiled"}]}})",
            kNotYet, "Precompiled"},
        BadTokenizer{"place after a normalizer",
                     R"({"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Metaspace",
                         "replacement": "_", "add_prefix_space": true, "prepend_scheme": "first"}})",
                     kNotYet, "prepend_scheme first"},
        BadTokenizer{"token that is nothing",
                     R"({"normalizer": {"type": "Strip"},
                         "added_tokens": [{"id": 261, "content": "  ", "normalized": true}]})",
                     kNotYet, "normalized to nothing"},
        BadTokenizer{"step after",
                     R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                         {"type": "ByteLevel"}, {"type": "Digits"}]}})",
                     kNotYet, "Digits"},
        BadTokenizer{"decoder of word pieces", R"({"decoder": {"type": "WordPiece"}})", kNotYet,
                     "WordPiece"},
        BadTokenizer{"BERT", R"({"post_processor": {"type": "BertProcessing"}})", kNotYet,
                     "BertProcessing"},
        BadTokenizer{"template without text",
                     R"({"post_processor": {"type": "TemplateProcessing", "single": []}})", kWrong,
                     "without the text"},
        BadTokenizer{"template of unknown tokens",
                     R"({"post_processor": {"type": "TemplateProcessing", "single":
                         [{"SpecialToken": {"id": "x"}}], "special_tokens": {}}})",
                     kWrong, "t.json"},
        BadTokenizer{"template of an id that no token has",
                     R"({"post_processor": {"type": "TemplateProcessing", "single":
                         [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}],
                         "special_tokens": {"x": {"ids": [12345678]}}}})",
                     kWrong, "12345678"},
        BadTokenizer{"added token elsewhere", R"({"added_tokens": [{"id": 5, "content": "he"}]})",
                     kWrong, "added token he"},
        BadTokenizer{"added token without id", R"({"added_tokens": [{"content": "he"}]})", kWrong,
                     "t.json"}),
    [](const auto& info) {
      std::string name = info.param.what;
      std::erase_if(name, [](char c) { return !isalnum(static_cast<unsigned char>(c)); });
      return name;
    });

// Every place of a file but the entries of its vocabulary, of which one counts for all.
void CollectPlaces(const Json& json, const Json::json_pointer& here,
                   std::vector<Json::json_pointer>* places) {
  if (!here.empty()) places->push_back(here);
  std::size_t count = 0;
  for (const auto& item : json.items()) {
    if (!json.is_structured() || ++count > 12) return;
    const bool in_list = json.is_array();
    CollectPlaces(item.value(), in_list ? here / (count - 1) : here / item.key(), places);
  }
}

TEST(TokenizerTest, NoMemberOfTheWrongTypeDoesMoreHarmThanAnError) {
  Json json = SmallTokenizer();
  json.merge_patch(Json::parse(
      R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "_"},
            {"type": "Strip", "strip_left": true, "strip_right": true}]},
          "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "invert": false},
            {"type": "Digits", "individual_digits": true},
            {"type": "Metaspace", "replacement": "_", "prepend_scheme": "never", "split": true},
            {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]},
          "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}, {"type": "ByteLevel"}]},
          "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [260]}}},
          "model": {"unk_token": "a", "ignore_merges": false, "fuse_unk": false,
            "byte_fallback": false, "dropout": null}})"));
  ASSERT_TRUE(Parse(json).ok()) << Parse(json).status().ToString();
  std::vector<Json::json_pointer> places;
  CollectPlaces(json, Json::json_pointer(), &places);
  EXPECT_GT(places.size(), 70u);
  int refused = 0;
  for (const auto& place : places) {
    for (const char* value : {"null", "true", "-1", "0.5", "1e300", R"("x")", "[]", "{}", "[[]]"}) {
      Json damaged = json;
      damaged[place] = Json::parse(value);
      const auto tokenizer = Parse(damaged);
      if (tokenizer.ok()) {
        EXPECT_LE(tokenizer->Encode("hello 12").size(), 20u);
        continue;
      }
      ++refused;
      EXPECT_THAT(tokenizer.status().message(), HasSubstr("t.json"))
          << place.to_string() << " = " << value;
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(TokenizerTest, AMemberOfTheWrongTypeIsNamed) {
  const struct {
    const char* patch;
    const char* message;
  } cases[] = {
      {R"({"normalizer": {"type": "Prepend", "prepend": 5}})", "normalizer: prepend is number"},
      {R"({"normalizer": {"type": "Prepend"}})", "normalizer: there is no prepend"},
      {R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "ab"}})",
       "pre_tokenizer: replacement is \"ab\""},
      {R"({"decoder": {"type": "Sequence", "decoders": 1}})", "decoder: decoders is number"},
      {R"({"model": {"ignore_merges": "yes"}})", "model: ignore_merges is string"},
      {R"({"added_tokens": {}})", "added_tokens: added_tokens is object"},
  };
  for (const auto& c : cases) {
    Json json = SmallTokenizer();
    json.merge_patch(Json::parse(c.patch));
    const auto tokenizer = Parse(json);
    ASSERT_FALSE(tokenizer.ok()) << c.patch;
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(c.message));
  }
}

TEST(TokenizerTest, MalformedFilesAreErrors) {
  for (const char* text : {"", "{", "[]", "null", "\xff"})
    EXPECT_FALSE(Tokenizer::Parse(text, "t.json").ok()) << text;
  TempDirForTest dir;
  const auto missing = Tokenizer::Load(dir.path());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr(dir / "tokenizer.json"));
  dir.Write("tokenizer.model", "x");
  EXPECT_THAT(Tokenizer::Load(dir.path()).status().message(), HasSubstr(dir / "tokenizer.model"));
}

}  // namespace
}  // namespace muster
