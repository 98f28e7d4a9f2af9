// Tokenizer against the Python packages `tokenizers` and `sentencepiece`, on texts that take it to
// its corners. The files are made by tests/golden/make_tokenizer_golden.py.
#include <gtest/gtest.h>

#include <fstream>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/testing/temp_dir.h"
#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {
namespace {

class TokenizerGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerGoldenTest, GivesTheIdsOfTheReferenceImplementation) {
  const std::string base = std::string(MUSTER_TESTDATA "/") + GetParam();
  const auto json = ReadFile(base + ".tokenizer.json");
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  const auto tokenizer = Tokenizer::Parse(*json, base);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  std::ifstream file(base + ".golden.jsonl");
  int rows = 0;
  for (std::string line; std::getline(file, line); ++rows) {
    const auto row = nlohmann::json::parse(line);
    const auto text = row.at("text").get<std::string>();
    const auto ids = row.at("ids").get<std::vector<std::int32_t>>();
    EXPECT_EQ(tokenizer->Encode(text), ids) << "text " << row.at("text");
    EXPECT_EQ(tokenizer->Encode(text, {.add_special_tokens = true}),
              row.at("special_ids").get<std::vector<std::int32_t>>());
    EXPECT_EQ(tokenizer->Decode(ids), row.at("decoded").get<std::string>());
    EXPECT_EQ(tokenizer->Decode(ids, {.skip_special_tokens = true}),
              row.at("skipped").get<std::string>());
  }
  EXPECT_GT(rows, 100);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerGoldenTest,
                         ::testing::Values("gpt2", "gpt2_prefix", "llama3", "qwen2", "smollm2",
                                           "removed", "qwen3", "llama2", "llama2_metaspace",
                                           "mistral", "mistral_always", "metaspace_split", "steps",
                                           "words", "gpt_neox", "o200k", "phi4", "gemma", "phi3"),
                         [](const auto& info) { return info.param; });

class SentencePieceGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SentencePieceGoldenTest, GivesTheIdsOfTheReferenceImplementation) {
  const std::string base = std::string(MUSTER_TESTDATA "/") + GetParam();
  TempDirForTest dir;
  dir.Write("tokenizer.model", *ReadFile(base + ".model"));
  const auto tokenizer = Tokenizer::Load(dir.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  std::ifstream file(base + ".golden.jsonl");
  int rows = 0;
  int decoded = 0;
  for (std::string line; std::getline(file, line); ++rows) {
    const auto row = nlohmann::json::parse(line);
    const auto ids = row.at("ids").get<std::vector<std::int32_t>>();
    EXPECT_EQ(tokenizer->Encode(row.at("text").get<std::string>()), ids) << row.at("text");
    if (row.at("decoded").is_null()) continue;
    EXPECT_EQ(tokenizer->Decode(ids), row.at("decoded").get<std::string>()) << row.at("text");
    ++decoded;
  }
  EXPECT_GT(rows, 100);
  EXPECT_GT(decoded, 20);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SentencePieceGoldenTest,
                         ::testing::Values("sp_llama2", "sp_plain", "sp_nfkc"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace muster
