#include "trainer/inputs/load_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/testing/temp_dir.h"
#include "trainer/data/testing/text_files_testing.h"
#include "trainer/formats/init_model.h"
#include "trainer/model/families/read_config.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LoadRowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_.Write("tokenizer.json", ByteTokenizerJson());
    dir_.Write("rows.jsonl", NumberedRows(0, 200));
    config_.vocab_size = 256;
    spec_.workdir = dir_.path();
    spec_.train.emplace();
    spec_.train->data.train = {"rows.jsonl"};
    spec_.train->data.max_seq_len = 64;
    spec_.train->output_dir = "runs/one";
  }
  DataSpec& data() { return spec_.train->data; }
  LoadedRows Load() {
    auto loaded = LoadRows(spec_, dir_.path(), config_, {});
    if (!loaded.ok()) {
      ADD_FAILURE() << loaded.status().message();
      return {};
    }
    return *std::move(loaded);
  }
  TrainStatus Fail() { return LoadRows(spec_, dir_.path(), config_, {}).status(); }

  TempDirForTest dir_;
  ModelConfig config_;
  JobSpec spec_;
};

TEST_F(LoadRowsTest, TokensAreKeptBesideTheOutputOrWhereTheJobSays) {
  EXPECT_EQ(TokenCacheDirectory(spec_), dir_ / "runs/.muster-cache");
  Load();
  EXPECT_FALSE(std::filesystem::is_empty(dir_ / "runs/.muster-cache"));
  data().cache = "here";
  EXPECT_EQ(TokenCacheDirectory(spec_), dir_ / "here");
  data().cache = "none";
  std::filesystem::remove_all(dir_ / "runs");
  EXPECT_EQ(Load().train->size(), 200);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "runs"));
}

TEST_F(LoadRowsTest, SeveralFilesAndFoldersAreOneDataset) {
  std::filesystem::create_directory(dir_ / "more");
  dir_.Write("more/b.jsonl", NumberedRows(200, 30));
  dir_.Write("more/a.json", "[{\"text\": \"abc\"}]");
  data().train = {"rows.jsonl", "more"};
  const LoadedRows rows = Load();
  ASSERT_EQ(rows.train->size(), 231);
  EXPECT_EQ(rows.train->Describe(std::vector<std::int64_t>{199, 200, 201}),
            "line 200 of rows.jsonl, line 1 of a.json, line 1 of b.jsonl");
  EXPECT_EQ(rows.eval, nullptr);
}

TEST_F(LoadRowsTest, RowsToEvaluateOnComeFromFilesOrFromARatio) {
  data().eval_ratio = 0.2;
  const LoadedRows split = Load();
  EXPECT_EQ(split.train->size() + split.eval->size(), 200);
  EXPECT_NEAR(static_cast<double>(split.eval->size()), 40, 20);
  data().eval_ratio = 0;
  dir_.Write("eval.jsonl", NumberedRows(0, 7));
  data().eval = {"eval.jsonl"};
  const LoadedRows named = Load();
  EXPECT_EQ(named.train->size(), 200);
  EXPECT_EQ(named.eval->size(), 7);
  data().eval = {"none.jsonl"};
  EXPECT_THAT(Fail().message(), HasSubstr("train.data.eval names files"));
}

TEST_F(LoadRowsTest, PackedRowsAreFewerAndTheTextBeyondARowIsKept) {
  dir_.Write("rows.jsonl", NumberedRows(0, 200) + NumberedRows(200, 1, 1000));
  data().packing = true;
  const LoadedRows rows = Load();
  EXPECT_LT(rows.train->size(), 130);
  EXPECT_GT(rows.train->stats().documents, 200);
  EXPECT_EQ(rows.train->stats().split, 1);
  EXPECT_EQ(rows.train->stats().truncated, 0);
  data().packing = false;
  EXPECT_EQ(Load().train->stats().truncated, 1);
}

class LoadChatRowsTest : public LoadRowsTest {
 protected:
  void SetUp() override {
    LoadRowsTest::SetUp();
    ASSERT_TRUE(WriteModelFiles(dir_.path(), *PresetConfig("tiny")).ok());
    config_ = *ReadModelConfig(dir_.path());
  }
  static std::string Answers(int rows) {
    std::string lines;
    for (int i = 0; i < rows; ++i)
      lines += R"({"prompt": ")" + std::to_string(i) +
               R"(", "completion": "yes"})"
               "\n";
    return lines;
  }
};

TEST_F(LoadChatRowsTest, ConversationsTeachTheEndOfATurn) {
  EXPECT_THAT(Load().ends_of_turn, IsEmpty()) << "plain text";
  dir_.Write("rows.jsonl", Answers(3));
  EXPECT_THAT(Load().ends_of_turn, ElementsAre(kImEndId));
  data().packing = true;
  EXPECT_THAT(Load().ends_of_turn, ElementsAre(kImEndId));
}

TEST_F(LoadChatRowsTest, ConversationsAmongOtherRowsTeachItToo) {
  dir_.Write("chats.jsonl", Answers(2));
  data().train = {"rows.jsonl", "chats.jsonl"};
  EXPECT_THAT(Load().ends_of_turn, ElementsAre(kImEndId));
}

TEST_F(LoadChatRowsTest, ATurnThatIsCutOffTeachesNoEnd) {
  dir_.Write("rows.jsonl", R"({"prompt": "say it", "completion": ")" + std::string(90, 'x') +
                               R"("})"
                               "\n");
  EXPECT_THAT(Load().ends_of_turn, IsEmpty());
}

TEST_F(LoadRowsTest, WhatIsWrongIsOfTheRowsOrOfTheModel) {
  dir_.Write("rows.jsonl", NumberedRows(0, 3) + "{\n");
  EXPECT_EQ(Fail().kind_name(), "data");
  EXPECT_THAT(Fail().message(), HasSubstr("rows.jsonl:4: "));
  data().train = {"no.jsonl"};
  EXPECT_EQ(Fail().kind_name(), "data");
  EXPECT_THAT(Fail().message(), HasSubstr("there is no " + (dir_ / "no.jsonl")));
  data().train = {"rows.jsonl"};
  std::filesystem::remove(dir_ / "tokenizer.json");
  EXPECT_EQ(Fail().kind_name(), "model");
}

}  // namespace
}  // namespace muster
