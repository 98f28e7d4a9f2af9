#include "trainer/report/progress_reporter.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  std::int64_t UnixMillis() const override { return 1'700'000'000'000; }
  void Advance(double seconds) { now_ += FromSeconds(seconds); }

 private:
  TimePoint now_{std::chrono::seconds(100)};
};

class ProgressReporterTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<UniqueFd> fd = CreateProgressPage();
    ASSERT_TRUE(fd.ok());
    Result<std::unique_ptr<ProgressWriter>> writer = ProgressWriter::Map(fd->get());
    ASSERT_TRUE(writer.ok());
    Result<std::unique_ptr<ProgressReader>> reader = ProgressReader::Map(fd->get());
    ASSERT_TRUE(reader.ok());
    Result<std::unique_ptr<FiguresWriter>> figures = FiguresWriter::Map(fd->get());
    ASSERT_TRUE(figures.ok());
    Result<std::unique_ptr<FiguresReader>> figures_reader = FiguresReader::Map(fd->get());
    ASSERT_TRUE(figures_reader.ok());
    page_ = *std::move(writer);
    figures_reader_ = *std::move(figures_reader);
    reporter_ = std::make_unique<ProgressReporter>(page_, clock_, *std::move(figures));
    reader_ = *std::move(reader);
  }
  ProgressValues Seen() const {
    ProgressValues values;
    EXPECT_TRUE(reader_->Read(&values));
    return values;
  }
  TrainingFigures Figures() const {
    TrainingFigures figures;
    EXPECT_TRUE(figures_reader_->Read(&figures));
    return figures;
  }
  double Part(StepPart part) const { return Figures().part_seconds[static_cast<int>(part)]; }
  double Time(RankTime time) const { return Figures().time_seconds[static_cast<int>(time)]; }

  ManualClock clock_;
  std::shared_ptr<ProgressWriter> page_;
  std::unique_ptr<ProgressReporter> reporter_;
  std::unique_ptr<ProgressReader> reader_;
  std::unique_ptr<FiguresReader> figures_reader_;
};

TEST_F(ProgressReporterTest, CollectivesAreToldByOperationWithTheNextStore) {
  page_->CountOperation(CollectiveOp::kReduceScatter);
  page_->CountOperation(CollectiveOp::kReduceScatter);
  page_->CountOperation(CollectiveOp::kBarrier);
  reporter_->Move();
  const std::array<std::uint64_t, kCollectiveOpCount> expected = {0, 2, 0, 0, 0, 1};
  EXPECT_EQ(Figures().collectives(), expected);
}

TEST_F(ProgressReporterTest, TimeGoesToThePhaseItWasSpentIn) {
  clock_.Advance(2);
  reporter_->EnterPhase(TrainPhase::kForward);
  clock_.Advance(0.5);
  reporter_->EnterPhase(TrainPhase::kBackward);
  clock_.Advance(0.25);
  reporter_->EnterPhase(TrainPhase::kForward);
  const ProgressValues values = Seen();
  EXPECT_EQ(values.phase, TrainPhase::kForward);
  EXPECT_NEAR(values.phase_seconds[static_cast<int>(TrainPhase::kStarting)], 2, 1e-9);
  EXPECT_NEAR(values.phase_seconds[static_cast<int>(TrainPhase::kForward)], 0.5, 1e-9);
  EXPECT_NEAR(values.phase_seconds[static_cast<int>(TrainPhase::kBackward)], 0.25, 1e-9);
}

TEST_F(ProgressReporterTest, StepsFillTheHistogram) {
  reporter_->StartAt(2, 40, 100);
  reporter_->FinishStep({.step = 41, .loss = 3, .step_seconds = 0.02}, {.tokens = 10});
  reporter_->FinishStep({.step = 42, .loss = 2, .tokens = 900, .step_seconds = 0.021},
                        {.tokens = 11});
  reporter_->FinishStep({.step = 43, .loss = 1, .tokens = 911, .step_seconds = 1000},
                        {.tokens = 11});
  const ProgressValues values = Seen();
  EXPECT_EQ(values.generation, 2);
  EXPECT_EQ(values.step, 43);
  EXPECT_EQ(values.max_steps, 100);
  EXPECT_EQ(values.loss, 1);
  EXPECT_EQ(values.steps_done, 3);
  EXPECT_EQ(values.tokens, 911);
  EXPECT_EQ(values.tokens_done, 32);
  EXPECT_EQ(values.step_seconds_buckets[4], 1u);  // up to 0.02, inclusive
  EXPECT_EQ(values.step_seconds_buckets[5], 1u);
  EXPECT_EQ(values.step_seconds_buckets.back(), 1u);
}

TEST_F(ProgressReporterTest, AStepsTimeIsBusyOrSpentWaitingForPeers) {
  const auto world = ClaimCell(page_, "world");
  auto shard = ClaimCell(page_, "shard");
  world->wait_nanoseconds = 5'000'000'000;  // before the step, as of a barrier
  reporter_->StartMicroBatch(0);
  world->wait_nanoseconds += 100'000'000;
  reporter_->StartMicroBatch(1);
  shard->wait_nanoseconds += 50'000'000;
  reporter_->FinishStep({.step = 1, .step_seconds = 1}, {.tokens = 1});
  EXPECT_NEAR(Seen().wait_seconds, 0.15, 1e-9);
  EXPECT_NEAR(Seen().busy_seconds, 0.85, 1e-9);
  // A group that is gone takes its waits along.
  reporter_->StartMicroBatch(0);
  shard.reset();
  reporter_->FinishStep({.step = 2, .step_seconds = 0.5}, {.tokens = 1});
  EXPECT_NEAR(Seen().wait_seconds, 0.15, 1e-9);
  EXPECT_NEAR(Seen().busy_seconds, 1.35, 1e-9);
}

TEST_F(ProgressReporterTest, APartOfAStepHasNoWaitInIt) {
  const auto world = ClaimCell(page_, "world");
  reporter_->EnterPhase(TrainPhase::kBackward);
  clock_.Advance(1);
  world->wait_nanoseconds += 250'000'000;
  reporter_->EnterPhase(TrainPhase::kOptimizer);
  clock_.Advance(0.5);
  reporter_->EnterPhase(TrainPhase::kLoading);
  clock_.Advance(8);
  reporter_->EnterPhase(TrainPhase::kCheckpoint);
  clock_.Advance(2);
  reporter_->EnterPhase(TrainPhase::kDone);
  EXPECT_NEAR(Part(StepPart::kBackward), 0.75, 1e-9);
  EXPECT_NEAR(Part(StepPart::kCommWait), 0.25, 1e-9);
  EXPECT_NEAR(Part(StepPart::kOptimizer), 0.5, 1e-9);
  EXPECT_NEAR(Part(StepPart::kCheckpoint), 2, 1e-9);
  EXPECT_NEAR(Time(RankTime::kCheckpoint), 2, 1e-9);
  EXPECT_EQ(Part(StepPart::kForward), 0);
}

TEST_F(ProgressReporterTest, StepsThatWereDoneBeforeAreBookedApart) {
  const auto world = ClaimCell(page_, "world");
  reporter_->SetFurthestStep(41);
  reporter_->StartMicroBatch(0);
  world->wait_nanoseconds += 100'000'000;
  reporter_->FinishStep({.step = 41, .step_seconds = 1}, {.samples = 4, .flops = 2e9});
  EXPECT_NEAR(Time(RankTime::kRecompute), 1, 1e-9);
  EXPECT_EQ(Time(RankTime::kStep), 0);
  reporter_->StartMicroBatch(0);
  world->wait_nanoseconds += 100'000'000;
  reporter_->FinishStep({.step = 42, .step_seconds = 1, .mfu = 0.5}, {.samples = 4, .flops = 2e9});
  EXPECT_NEAR(Time(RankTime::kRecompute), 1, 1e-9);
  EXPECT_NEAR(Time(RankTime::kStep), 0.9, 1e-9);
  EXPECT_NEAR(Time(RankTime::kWait), 0.1, 1e-9);
  EXPECT_EQ(reporter_->furthest_step(), 42);
  EXPECT_EQ(Figures().samples_done, 8);
  EXPECT_EQ(Figures().flops_done, 4e9);
  EXPECT_EQ(Figures().mfu, 0.5);
  EXPECT_EQ(Figures().last_step_unix_ms, 1'700'000'000'000);
}

TEST_F(ProgressReporterTest, WhatWasSavedIsShownWithTheNextStore) {
  SaveSeconds write;
  write.Observe(2);
  reporter_->CountStage(0.02);
  reporter_->SetSaved(write, 4096);
  reporter_->SetDeviceMemory({.capacity = 100, .peak_reserved = 90, .ooms = 1});
  reporter_->Move();
  EXPECT_EQ(Figures().write, write);
  EXPECT_EQ(Figures().stage.buckets[1], 1u);
  EXPECT_EQ(Figures().checkpoint_bytes, 4096u);
  EXPECT_EQ(Figures().device.peak_reserved, 90u);
}

TEST_F(ProgressReporterTest, FailedCollectivesAreCountedByKind) {
  reporter_->CountCollectiveError(CollectiveError::kTimeout);
  EXPECT_EQ(Figures().collective_errors[static_cast<int>(CollectiveError::kTimeout)], 1u);
  EXPECT_EQ(Figures().collective_errors[static_cast<int>(CollectiveError::kPeerLost)], 0u);
  reporter_->CountSocketFallback();
  EXPECT_EQ(Figures().socket_fallbacks, 1u);
}

TEST_F(ProgressReporterTest, WhoWaitsForAnAssignmentSaysSo) {
  reporter_->EnterPhase(TrainPhase::kStandby);
  clock_.Advance(3);
  EXPECT_EQ(Seen().phase, TrainPhase::kStandby);
  reporter_->EnterPhase(TrainPhase::kParked);
  EXPECT_EQ(Seen().phase, TrainPhase::kParked);
  EXPECT_NEAR(Seen().phase_seconds[static_cast<int>(TrainPhase::kStandby)], 3, 1e-9);
}

TEST_F(ProgressReporterTest, TheNewestSealedSnapshotIsShown) {
  EXPECT_EQ(Seen().snapshot_step, -1);
  reporter_->SetSnapshotStep(12);
  EXPECT_EQ(Seen().snapshot_step, 12);
}

TEST_F(ProgressReporterTest, NonFiniteStepsAreCounted) {
  reporter_->CountNonFinite();
  EXPECT_EQ(Seen().nonfinite, 1);
}

TEST(ResidentBytes, IsThatOfALivingProcess) { EXPECT_GT(ResidentBytes(), 1u << 20); }

}  // namespace
}  // namespace muster
