#include "coordinator/history/histories.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using namespace std::chrono_literals;

// A job as the controller would show it.
struct FakeJob {
  explicit FakeJob(const std::string& id, int ranks = 2)
      : progress(static_cast<std::size_t>(ranks)) {
    record.id = JobId{id};
    record.generation = 1;
  }
  JobView View() const {
    JobView view;
    view.record = &record;
    view.progress = &progress;
    view.attempts = &attempts;
    view.tokens_per_second = 100;
    return view;
  }
  void Finish(Step step, double loss = 2) {
    record.step = step;
    record.loss = loss;
    for (std::size_t rank = 0; rank < progress.size(); ++rank) {
      progress[rank].rank = static_cast<int>(rank);
      progress[rank].step = step;
      progress[rank].step_seconds = 0.5;
      progress[rank].loss = loss;
      progress[rank].rss_bytes = 1000 * (rank + 1);
    }
  }
  JobRecord record;
  std::vector<RankProgress> progress;
  std::vector<AttemptRecord> attempts;
};

constexpr TimePoint kBegin = TimePoint() + 1h;

TEST(Histories, KeepsAPointPerStepWithTheLargestRanksMemory) {
  Histories histories;
  FakeJob job("a");
  for (Step step = 1; step <= 10; ++step) {
    job.Finish(step, 1.0 / static_cast<double>(step));
    for (int again = 0; again < 3; ++again) histories.Observe(job.View(), kBegin + step * 1s);
  }
  const JobHistory* history = histories.Find(job.record.id);
  ASSERT_NE(history, nullptr);
  ASSERT_EQ(history->curves.cells().size(), 10u);
  const auto& ranges = history->curves.cells()[4].ranges;
  EXPECT_EQ(ranges[static_cast<std::size_t>(Curve::kLoss)].last, 0.2);
  EXPECT_EQ(ranges[static_cast<std::size_t>(Curve::kMemoryBytes)].last, 2000);
  EXPECT_EQ(history->times.All().steps, 10u);
  EXPECT_EQ(history->times.Recent().p50, 0.5);
  EXPECT_EQ(history->stepped_at, kBegin + 10s);
}

TEST(Histories, TheLossIsWhatTheRanksSayOfTheStep) {
  Histories histories;
  FakeJob job("a");
  job.Finish(1, 6.5);
  job.record.loss = 0;
  histories.Observe(job.View(), kBegin);
  const auto& ranges = histories.Find(job.record.id)->curves.cells().at(0).ranges;
  EXPECT_EQ(ranges[static_cast<std::size_t>(Curve::kLoss)].last, 6.5);
}

// A new process stands at the step that it resumes from with a loss of 0: curves fell to it there.
TEST(Histories, TheStepThatAGangResumesFromIsNoPointOfIts) {
  Histories histories;
  FakeJob job("a");
  job.Finish(43, 5);
  job.Finish(44, 4.9);
  histories.Observe(job.View(), kBegin);
  ++job.record.generation;
  job.attempts.resize(2);
  job.attempts[1].resumed_step = 44;
  for (RankProgress& rank : job.progress) rank = {.rank = rank.rank, .step = 44};
  histories.Observe(job.View(), kBegin + 1s);
  const auto& cells = histories.Find(job.record.id)->curves.cells();
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].ranges[static_cast<std::size_t>(Curve::kLoss)].last, 4.9);
  // Also if the ranks' pages arrive before their report of it.
  job.attempts[1].resumed_step = -1;
  histories.Observe(job.View(), kBegin + 2s);
  EXPECT_EQ(histories.Find(job.record.id)->curves.cells()[0].ranges[0].last, 4.9);
  job.Finish(45, 4.8);
  histories.Observe(job.View(), kBegin + 3s);
  EXPECT_EQ(histories.Find(job.record.id)->curves.cells().back().ranges[0].last, 4.8);
}

TEST(Histories, TheMemoryOfARankWithAGpuIsTheGpus) {
  Histories histories;
  FakeJob job("a");
  job.Finish(1);
  for (RankProgress& rank : job.progress) {
    rank.device_bytes = 50 + static_cast<std::uint64_t>(rank.rank);
    rank.device_capacity_bytes = 80;
  }
  histories.Observe(job.View(), kBegin);
  const auto& ranges = histories.Find(job.record.id)->curves.cells().at(0).ranges;
  EXPECT_EQ(ranges[static_cast<std::size_t>(Curve::kMemoryBytes)].last,
            50 + static_cast<double>(job.progress.size() - 1));
}

TEST(Histories, StepsThatWereNotSeenCountForTheStepDurations) {
  Histories histories;
  FakeJob job("a");
  for (const Step step : {1, 5, 9}) {
    job.Finish(step);
    histories.Observe(job.View(), kBegin);
  }
  EXPECT_EQ(histories.Find(job.record.id)->times.All().steps, 9u);
  ++job.record.generation;
  job.Finish(7);
  histories.Observe(job.View(), kBegin);
  EXPECT_EQ(histories.Find(job.record.id)->times.All().steps, 10u);
  EXPECT_EQ(histories.Find(job.record.id)->curves.last_step(), 7);
}

TEST(Histories, AStepThatNoRankReportsIsNoStep) {
  Histories histories;
  FakeJob job("a");
  job.record.step = 20;  // from the store
  histories.Observe(job.View(), kBegin);
  EXPECT_EQ(histories.Find(job.record.id), nullptr);
  EXPECT_TRUE(histories.WantsPast(job.View(), kBegin));
  EXPECT_FALSE(histories.WantsPast(job.View(), kBegin)) << "asked for once";
}

TEST(Histories, ThePastComesBeforeWhatWasSeen) {
  Histories histories;
  FakeJob job("a");
  for (Step step = 21; step <= 25; ++step) {
    job.Finish(step);
    histories.Observe(job.View(), kBegin);
  }
  ASSERT_TRUE(histories.WantsPast(job.View(), kBegin));
  StepCurves past;
  for (Step step = 1; step <= 22; ++step) past.Add({step, 1, {3, 1, 1, 1}});
  histories.TakePast(job.record.id, past);
  const StepCurves& curves = histories.Find(job.record.id)->curves;
  ASSERT_EQ(curves.cells().size(), 25u);
  EXPECT_EQ(curves.cells()[21].ranges[0].last, 3);
  EXPECT_EQ(curves.cells()[22].ranges[0].last, 2);

  FakeJob seen("b");
  seen.Finish(1);
  histories.Observe(seen.View(), kBegin);
  seen.Finish(2);
  histories.Observe(seen.View(), kBegin);
  EXPECT_FALSE(histories.WantsPast(seen.View(), kBegin)) << "all of it was seen";
}

TEST(Histories, TheJobWithTheOldestReportIsDropped) {
  Histories histories;
  for (std::size_t i = 0; i <= Histories::kMaxJobs; ++i) {
    FakeJob job("job-" + std::to_string(i));
    job.Finish(1);
    histories.Observe(job.View(), kBegin + i * 1s);
  }
  EXPECT_EQ(histories.size(), Histories::kMaxJobs);
  EXPECT_EQ(histories.Find(JobId{"job-0"}), nullptr);
  EXPECT_NE(histories.Find(JobId{"job-1"}), nullptr);
}

}  // namespace
}  // namespace muster
