#include "common/control_pipe/training_figures.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <thread>

#include "common/control_pipe/progress_page.h"

namespace muster {
namespace {

class TrainingFiguresTest : public testing::Test {
 protected:
  void SetUp() override {
    auto fd = CreateProgressPage();
    ASSERT_TRUE(fd.ok());
    page_ = *std::move(fd);
    auto reader = FiguresReader::Map(page_.get());
    ASSERT_TRUE(reader.ok());
    reader_ = *std::move(reader);
  }

  UniqueFd page_;
  std::unique_ptr<FiguresReader> reader_;
};

TEST_F(TrainingFiguresTest, ARankThatKeepsNoneHasNone) {
  auto progress = ProgressWriter::Map(page_.get());
  ASSERT_TRUE(progress.ok());
  (*progress)->values().step = 3;
  (*progress)->Publish();
  TrainingFigures figures;
  EXPECT_FALSE(reader_->Read(&figures));
}

TEST_F(TrainingFiguresTest, TheTwoHalvesOfAPageLeaveEachOtherAlone) {
  auto progress = ProgressWriter::Map(page_.get());
  auto writer = FiguresWriter::Map(page_.get());
  ASSERT_TRUE(progress.ok() && writer.ok());
  TrainingFigures published;
  published.samples_done = 8;
  published.device.ooms = 2;
  published.routers.idle = 3;  // the last word
  (*writer)->Publish(published);
  (*progress)->values().step = 3;
  (*progress)->Publish();
  TrainingFigures figures;
  ASSERT_TRUE(reader_->Read(&figures));
  EXPECT_EQ(figures, published);
  ProgressValues values;
  ASSERT_TRUE((*ProgressReader::Map(page_.get()))->Read(&values));
  EXPECT_EQ(values.step, 3);
}

TEST_F(TrainingFiguresTest, WhatAnOlderRankDoesNotCountIsZeroAndANewerOneIsNotRead) {
  auto writer = FiguresWriter::Map(page_.get());
  ASSERT_TRUE(writer.ok());
  TrainingFigures published;
  published.samples_done = 8;
  (*writer)->Publish(published);
  constexpr off_t kVersionAt = kFiguresOffset + sizeof(std::uint32_t);
  for (const auto& [version, readable] : {std::pair{0u, false}, {1u, true}, {5u, false}}) {
    const std::uint32_t word = version;
    ASSERT_EQ(::pwrite(page_.get(), &word, sizeof word, kVersionAt), ssize_t{sizeof word});
    TrainingFigures figures;
    EXPECT_EQ(reader_->Read(&figures), readable) << version;
    EXPECT_EQ(figures.samples_done, readable ? 8 : 0) << version;
  }
}

TEST_F(TrainingFiguresTest, AReadingIsNeverTorn) {
  auto writer = FiguresWriter::Map(page_.get());
  ASSERT_TRUE(writer.ok());
  std::atomic<bool> stop{false};
  std::thread rank([&] {
    TrainingFigures figures;
    while (!stop) {
      ++figures.samples_done;
      figures.device.ooms = static_cast<std::uint64_t>(figures.samples_done);
      (*writer)->Publish(figures);
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 2000; ++i) {
    TrainingFigures figures;
    if (!reader_->Read(&figures)) continue;
    ASSERT_EQ(static_cast<std::uint64_t>(figures.samples_done), figures.device.ooms);
  }
  stop = true;
  rank.join();
}

TEST(SaveSeconds, FillsTheBucketWhoseBoundIsNotExceeded) {
  SaveSeconds seconds;
  seconds.Observe(0.01);
  seconds.Observe(0.02);
  seconds.Observe(5000);
  EXPECT_EQ(seconds.buckets[0], 1u);
  EXPECT_EQ(seconds.buckets[1], 1u);
  EXPECT_EQ(seconds.buckets.back(), 1u);
  EXPECT_NEAR(seconds.sum, 5000.03, 1e-9);
}

TEST(TrainingFigures, EveryNameIsKnown) {
  for (std::size_t i = 0; i < kStepPartCount; ++i)
    EXPECT_NE(StepPartName(static_cast<StepPart>(i)), "unknown");
  for (std::size_t i = 0; i < kRankTimeCount; ++i)
    EXPECT_NE(RankTimeName(static_cast<RankTime>(i)), "unknown");
  for (std::size_t i = 0; i < kCollectiveErrorCount; ++i)
    EXPECT_NE(CollectiveErrorName(static_cast<CollectiveError>(i)), "unknown");
  EXPECT_EQ(StepPartName(static_cast<StepPart>(kStepPartCount)), "unknown");
}

}  // namespace
}  // namespace muster
