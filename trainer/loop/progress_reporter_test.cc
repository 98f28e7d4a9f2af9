#include "trainer/loop/progress_reporter.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  std::int64_t UnixMillis() const override { return 0; }
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
    page_ = *std::move(writer);
    reporter_ = std::make_unique<ProgressReporter>(page_, clock_);
    reader_ = *std::move(reader);
  }
  ProgressValues Seen() const {
    ProgressValues values;
    EXPECT_TRUE(reader_->Read(&values));
    return values;
  }

  ManualClock clock_;
  std::shared_ptr<ProgressWriter> page_;
  std::unique_ptr<ProgressReporter> reporter_;
  std::unique_ptr<ProgressReader> reader_;
};

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
  reporter_->FinishStep({.step = 41, .loss = 3, .step_seconds = 0.02}, 10);
  reporter_->FinishStep({.step = 42, .loss = 2, .tokens = 900, .step_seconds = 0.021}, 11);
  reporter_->FinishStep({.step = 43, .loss = 1, .tokens = 911, .step_seconds = 1000}, 11);
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
  reporter_->FinishStep({.step = 1, .step_seconds = 1}, 1);
  EXPECT_NEAR(Seen().wait_seconds, 0.15, 1e-9);
  EXPECT_NEAR(Seen().busy_seconds, 0.85, 1e-9);
  // A group that is gone takes its waits along.
  reporter_->StartMicroBatch(0);
  shard.reset();
  reporter_->FinishStep({.step = 2, .step_seconds = 0.5}, 1);
  EXPECT_NEAR(Seen().wait_seconds, 0.15, 1e-9);
  EXPECT_NEAR(Seen().busy_seconds, 1.35, 1e-9);
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
