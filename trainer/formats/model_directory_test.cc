#include "trainer/formats/model_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "trainer/formats/init_model.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::UnorderedElementsAre;

// An output directory that rank 0 of several generations writes its model into.
class ModelDirectoryFencing : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteModelFiles(dir_ / "source", *PresetConfig("tiny")).ok());
    fs::create_directories(dir_ / "out");
  }
  ModelDirectory Of(const std::string& job, Generation generation) const {
    return ModelDirectory(dir_ / "source", dir_ / "out/model", {job, generation});
  }
  // The model is one number.
  static void Begin(ModelDirectory& model, float value) {
    ASSERT_TRUE(
        model.Begin({TensorSpec{.name = "x", .type = TensorType::kF32, .shape = {1}}}).ok());
    ASSERT_TRUE(model.Append(&value, 1).ok());
  }
  float Published() const {
    const auto model = SafetensorsModel::Open(dir_ / "out/model");
    float value = -1;
    EXPECT_TRUE(model.ok() && model->ReadFloats("x", 0, 1, &value).ok());
    return value;
  }
  std::vector<std::string> Listed() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_ / "out")) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  const TempDirForTest dir_;
};

TEST_F(ModelDirectoryFencing, FilesOfItsOwnStandForThoseOfTheSource) {
  ModelDirectory model = Of("job", 1);
  model.Replace({{"config.json", "{}"}, {"notes.txt", "new"}});
  Begin(model, 1);
  ASSERT_TRUE(model.Finish().ok());
  EXPECT_EQ(*ReadFile(dir_ / "out/model/config.json"), "{}");
  EXPECT_EQ(*ReadFile(dir_ / "out/model/notes.txt"), "new");
  EXPECT_EQ(*ReadFile(dir_ / "out/model/tokenizer.json"),
            *ReadFile(dir_ / "source/tokenizer.json"));
  EXPECT_NE(*ReadFile(dir_ / "source/config.json"), "{}");
}

TEST_F(ModelDirectoryFencing, AGivenUpGenerationThatFailsRemovesNothingOfTheNext) {
  ModelDirectory next = Of("job", 3);
  {
    ModelDirectory old = Of("job", 2);
    Begin(old, 2);
    Begin(next, 3);
  }
  ASSERT_TRUE(next.Finish().ok());
  EXPECT_EQ(Published(), 3);
  EXPECT_THAT(Listed(), UnorderedElementsAre("model"));
}

TEST_F(ModelDirectoryFencing, AGivenUpGenerationDoesNotPublishWhatTheNextHasHalfWritten) {
  ModelDirectory old = Of("job", 2);
  Begin(old, 2);
  ModelDirectory next = Of("job", 3);
  Begin(next, 3);
  EXPECT_FALSE(old.Finish().ok());
  EXPECT_THAT(Listed(), UnorderedElementsAre("model.writing-job-g3"));
}

TEST_F(ModelDirectoryFencing, AGivenUpGenerationThatWasSealedPublishesNothing) {
  ModelDirectory old = Of("job", 2);
  Begin(old, 2);
  ASSERT_TRUE(old.Seal().ok());
  ModelDirectory next = Of("job", 3);
  Begin(next, 3);
  EXPECT_EQ(old.Publish().code(), StatusCode::kCancelled);
  ASSERT_TRUE(next.Finish().ok());
  // Nor does it take away what is in place by then.
  EXPECT_FALSE(old.Publish().ok());
  EXPECT_EQ(Published(), 3);
  EXPECT_THAT(Listed(), UnorderedElementsAre("model"));
}

TEST_F(ModelDirectoryFencing, AGivenUpGenerationThatBeginsLateDoesNotDisturbTheNext) {
  ModelDirectory next = Of("job", 10);
  Begin(next, 10);
  ModelDirectory old = Of("job", 9);
  Begin(old, 9);
  EXPECT_EQ(old.Finish().code(), StatusCode::kCancelled);
  ASSERT_TRUE(next.Finish().ok());
  EXPECT_EQ(Published(), 10);
}

TEST_F(ModelDirectoryFencing, WhatKilledExportsLeftIsRemovedWhoeverWroteIt) {
  for (const char* name : {"model.writing", "model.writing-job-g1", "model.writing-job-g4.old",
                           "model.writing-other-g7", "model.written"}) {
    fs::create_directories(dir_ / ("out/" + std::string(name)));
  }
  ModelDirectory model = Of("job", 4);
  Begin(model, 4);
  EXPECT_THAT(Listed(), UnorderedElementsAre("model.writing-job-g4", "model.written"));
}

TEST_F(ModelDirectoryFencing, AnExportByHandLeavesARunningJobsAlone) {
  ModelDirectory job = Of("job", 1);
  Begin(job, 1);
  ModelDirectory hand = Of("", 0);
  Begin(hand, 0);
  ASSERT_TRUE(hand.Finish().ok());
  EXPECT_EQ(Published(), 0);
  ASSERT_TRUE(job.Finish().ok());
  EXPECT_EQ(Published(), 1);
}

}  // namespace
}  // namespace muster
