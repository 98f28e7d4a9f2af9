#include "trainer/report/event_log.h"
#include "common/base/testing/temp_dir.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace muster {
namespace {

TEST(EventFileName, IsBehindAllThatAreThereWhateverTheClockSays) {
  EXPECT_EQ(EventFileName({}, 1700000000, 3, "n1"), "events.out.tfevents.1700000000.3.n1");
  const std::vector<std::string> names = {"events.out.tfevents.1700000009.1.n0", "profile",
                                          "events.out.tfevents.x", "events.out.tfevents."};
  EXPECT_EQ(EventFileName(names, 1700000000, 3, "n1"), "events.out.tfevents.1700000010.3.n1");
  EXPECT_EQ(EventFileName(names, 1700000020, 3, "n1"), "events.out.tfevents.1700000020.3.n1");
}

TEST(SampleTag, IsCutBetweenCharactersAndAlwaysUtf8) {
  EXPECT_EQ(SampleTag("Hello"), "samples/Hello");
  const std::string fits(59, 'a');
  EXPECT_EQ(SampleTag(fits + "b" + "c"), "samples/" + fits + "b");
  EXPECT_EQ(SampleTag(fits + "\u00fc" + "c"), "samples/" + fits);
  EXPECT_EQ(SampleTag("a\xffz"), "samples/a\ufffdz");
}

class EventLogTest : public testing::Test {
 protected:
  std::string dir() const { return root_ / "tensorboard"; }

  std::vector<std::string> Contents() const {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(dir()))
      paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> contents;
    for (const auto& path : paths) {
      std::ifstream in(path, std::ios::binary);
      contents.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    return contents;
  }

 private:
  const TempDirForTest root_;
};

TEST_F(EventLogTest, NothingIsMadeBeforeTheFirstEvent) {
  EventLog log(dir(), 1);
  EXPECT_FALSE(std::filesystem::exists(dir()));
}

TEST_F(EventLogTest, EachAttemptHasAFileThatSaysWhereItGoesOn) {
  EventLog first(dir(), 1), second(dir(), 2);
  ASSERT_TRUE(first.AppendStep(1, {{"train/loss", 4}}).ok());
  ASSERT_TRUE(first.AppendStep(2, {{"train/loss", 3}}).ok());
  ASSERT_TRUE(second.AppendStep(2, {{"train/loss", 3}}).ok());
  const std::vector<std::string> files = Contents();
  ASSERT_EQ(files.size(), 2u);
  // SessionLog{status: START} behind the number of the step.
  EXPECT_NE(files[0].find(std::string("\x10\x01\x3a\x02\x08\x01", 6)), std::string::npos);
  EXPECT_NE(files[1].find(std::string("\x10\x02\x3a\x02\x08\x01", 6)), std::string::npos);
}

// What was trained up to there stays: an evaluation is of a step that is finished.
TEST_F(EventLogTest, AnEvaluationAtFirstLeavesTheStepBeforeIt) {
  EventLog log(dir(), 2);
  ASSERT_TRUE(log.AppendScalars(7, {{"eval/loss", 3}}).ok());
  EXPECT_NE(Contents()[0].find(std::string("\x10\x08\x3a\x02\x08\x01", 6)), std::string::npos);
}

TEST_F(EventLogTest, WhatCannotBeWrittenIsAnErrorThatNamesIt) {
  std::ofstream(dir()) << "a file";
  EventLog log(dir(), 1);
  const Status status = log.AppendStep(1, {{"train/loss", 4}});
  EXPECT_NE(status.message().find(dir()), std::string::npos) << status.ToString();
}

}  // namespace
}  // namespace muster
