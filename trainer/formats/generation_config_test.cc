#include "trainer/formats/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/json.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// The new file's content; nothing: it stays as it is.
std::optional<Json> WithEnd(const TempDirForTest& dir, const ModelConfig& config, std::int32_t id) {
  const Result<std::string> text = GenerationConfigWithEnds(dir.path(), config, {id});
  if (!text.ok()) ADD_FAILURE() << text.status().ToString();
  if (!text.ok() || text->empty()) return std::nullopt;
  return Json::parse(*text);
}

TEST(GenerationConfigTest, AnotherEndIsPutBehindThoseThatThereAre) {
  TempDirForTest dir;
  dir.Write("generation_config.json", R"({"temperature": 0.6, "eos_token_id": 7, "top_p": 0.9})");
  const ModelConfig config{.eos_token_ids = {7}};
  EXPECT_EQ(WithEnd(dir, config, 9)->dump(),
            R"({"temperature":0.6,"eos_token_id":[7,9],"top_p":0.9})");
  EXPECT_FALSE(WithEnd(dir, config, 7));
  dir.Write("generation_config.json", R"({"eos_token_id": [7, 9]})");
  EXPECT_FALSE(WithEnd(dir, {.eos_token_ids = {7, 9}}, 9));
}

TEST(GenerationConfigTest, SeveralEndsArePutThereOnceEach) {
  TempDirForTest dir;
  dir.Write("generation_config.json", R"({"eos_token_id": [7, 9]})");
  const ModelConfig config{.eos_token_ids = {7, 9}};
  EXPECT_EQ(Json::parse(*GenerationConfigWithEnds(dir.path(), config, {9, 11}))["eos_token_id"],
            Json({7, 9, 11}));
  EXPECT_EQ(*GenerationConfigWithEnds(dir.path(), config, {9, 7}), "");
}

// transformers asks the one file alone.
TEST(GenerationConfigTest, AnEndThatOnlyTheOtherFileNamesIsNoneYet) {
  TempDirForTest dir;
  dir.Write("generation_config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ((*WithEnd(dir, {.eos_token_ids = {9, 7}}, 9))["eos_token_id"], Json({9, 7}));
}

TEST(GenerationConfigTest, WhereThereIsNoFileTheModelsOwnIdsAreTaken) {
  TempDirForTest dir;
  const ModelConfig config{
      .eos_token_ids = {7},
      .raw_json =
          R"({"hidden_size": 8, "bos_token_id": 1, "eos_token_id": 7, "pad_token_id": null})"};
  EXPECT_EQ(WithEnd(dir, config, 9)->dump(), R"({"bos_token_id":1,"eos_token_id":[7,9]})");
  EXPECT_FALSE(WithEnd(dir, config, 7));
  EXPECT_EQ(WithEnd(dir, {}, 9)->dump(), R"({"eos_token_id":[9]})");
}

TEST(GenerationConfigTest, AFileThatIsNoneIsNamed) {
  TempDirForTest dir;
  dir.Write("generation_config.json", "[1]");
  const Status status = GenerationConfigWithEnds(dir.path(), {}, {9}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("generation_config.json holds no JSON object"));
}

}  // namespace
}  // namespace muster
