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
    reporter_ = std::make_unique<ProgressReporter>(*std::move(writer), clock_);
    reader_ = *std::move(reader);
  }
  ProgressValues Seen() const {
    ProgressValues values;
    EXPECT_TRUE(reader_->Read(&values));
    return values;
  }

  ManualClock clock_;
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

TEST_F(ProgressReporterTest, NonFiniteStepsAreCounted) {
  reporter_->CountNonFinite();
  EXPECT_EQ(Seen().nonfinite, 1);
}

TEST(ResidentBytes, IsThatOfALivingProcess) { EXPECT_GT(ResidentBytes(), 1u << 20); }

}  // namespace
}  // namespace muster
