#include "worker/agent/progress_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <string_view>

namespace muster::worker {
namespace {

using testing::IsEmpty;
using namespace std::chrono_literals;

const JobId kJob{"00c0ffee00"};
constexpr Duration kInterval = 100ms;

constexpr pid_t kPid = 4711;
constexpr TimePoint kStart = TimePoint() + 1h;

// A rank as the sampler sees it.
struct FakeRank {
  explicit FakeRank(Generation generation = 1) {
    page = CreateProgressPage().value();
    writer = ProgressWriter::Map(page.get()).value();
    writer->values().generation = generation;
    writer->Publish();
  }
  void Finish(Step step) {
    writer->values().step = step;
    writer->values().loss = 1.0 / static_cast<double>(step);
    ++writer->values().steps_done;
    writer->Publish();
  }
  UniqueFd page;
  std::unique_ptr<ProgressWriter> writer;
};

class ProgressSamplerTest : public testing::Test {
 protected:
  std::vector<Progress> SampleAt(Duration since_start) {
    return sampler_.Sample(TimePoint() + 1h + since_start, kInterval);
  }
  RankProgress SampleOneAt(Duration since_start) {
    const auto news = SampleAt(since_start);
    if (news.size() != 1 || news[0].ranks.size() != 1) return {.rank = -1};
    return news[0].ranks[0];
  }
  void Add(const FakeRank& rank, Generation generation = 1, int number = 0) {
    const Status status =
        sampler_.AddPage(kJob, "chat", generation, number, kPid, rank.page, kStart);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  Result<ProcessInfo> process_ =
      ProcessInfo{.pid = kPid, .state = 'R', .start_time = 100, .cpu_ticks = 50};
  ProgressSampler sampler_{45s, [this](pid_t pid) {
                             EXPECT_EQ(pid, kPid);
                             return process_;
                           }};
};

TEST_F(ProgressSamplerTest, ReportsTheNewestFinishedStep) {
  FakeRank rank;
  Add(rank);
  rank.Finish(4);
  const auto news = SampleAt(1s);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].job, kJob);
  EXPECT_EQ(news[0].generation, 1);
  ASSERT_EQ(news[0].ranks.size(), 1u);
  EXPECT_EQ(news[0].ranks[0].step, 4);
  EXPECT_EQ(news[0].ranks[0].loss, 0.25);
}

TEST_F(ProgressSamplerTest, ARankThatDoesNotMoveIsReportedAtEveryInterval) {
  FakeRank rank;
  Add(rank);
  const RankProgress first = SampleOneAt(0ms);
  EXPECT_EQ(first.rank, 0);
  EXPECT_THAT(SampleAt(99ms), IsEmpty());
  const RankProgress second = SampleOneAt(100ms);
  EXPECT_EQ(second.stores, first.stores);
  EXPECT_DOUBLE_EQ(second.quiet_seconds, 0.1);
  EXPECT_EQ(second.quiet_samples, 3u);
  EXPECT_DOUBLE_EQ(SampleOneAt(200ms).quiet_seconds, 0.2);
}

TEST_F(ProgressSamplerTest, EveryStoreOfARankIsCounted) {
  FakeRank rank;
  Add(rank);
  const std::uint64_t before = SampleOneAt(0ms).stores;
  rank.writer->Publish();
  EXPECT_GT(SampleOneAt(1s).stores, before);
}

TEST_F(ProgressSamplerTest, ReportsWhereInItsCollectivesARankIs) {
  FakeRank rank;
  void* memory =
      ::mmap(nullptr, kProgressPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, rank.page.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  CollectiveCell& world = static_cast<ProgressPageLayout*>(memory)->cells[0];
  constexpr std::string_view kName = "world";
  std::copy(kName.begin(), kName.end(), world.group.begin());
  world.enqueued = 8;
  world.started = 7;
  world.completed = 6;
  world.bytes = 4096;
  ::munmap(memory, kProgressPageBytes);
  Add(rank);
  const std::vector<CollectiveCounts> expected = {{"world", 8, 7, 6, 4096, 0}};
  EXPECT_EQ(SampleOneAt(0ms).collectives, expected);
}

TEST_F(ProgressSamplerTest, ReportsAllOfThePage) {
  FakeRank rank;
  ProgressValues& values = rank.writer->values();
  values.phase = TrainPhase::kBackward;
  values.micro_batch = 3;
  values.busy_seconds = 1.5;
  values.wait_seconds = 0.5;
  values.steps_done = 12;
  values.snapshot_step = 11;
  values.phase_seconds[static_cast<int>(TrainPhase::kData)] = 0.25;
  rank.writer->Publish();
  Add(rank);
  const RankProgress told = SampleOneAt(0ms);
  EXPECT_EQ(told.phase, TrainPhase::kBackward);
  EXPECT_EQ(told.micro_batch, 3);
  EXPECT_EQ(told.busy_seconds, 1.5);
  EXPECT_EQ(told.wait_seconds, 0.5);
  EXPECT_EQ(told.steps_done, 12);
  EXPECT_EQ(told.snapshot_step, 11);
  ASSERT_EQ(told.phase_seconds.size(), static_cast<std::size_t>(kTrainPhaseCount));
  EXPECT_EQ(told.phase_seconds[static_cast<int>(TrainPhase::kData)], 0.25);
}

TEST_F(ProgressSamplerTest, ReportsTheStateOfTheProcess) {
  FakeRank rank;
  Add(rank);
  EXPECT_EQ(SampleOneAt(0s).process_state, "R");
  process_->state = 'T';
  EXPECT_EQ(SampleOneAt(1s).process_state, "T");
  EXPECT_GT(SampleOneAt(2s).cpu_seconds, 0);
  process_->start_time = 101;
  EXPECT_EQ(SampleOneAt(3s).process_state, "") << "another process has its number";
  process_ = NotFound("gone");
  EXPECT_EQ(SampleOneAt(4s).process_state, "");
}

TEST_F(ProgressSamplerTest, AStoppedProcessIsSentAtOnce) {
  FakeRank rank;
  Add(rank);
  SampleAt(0ms);
  process_->state = 'T';
  EXPECT_EQ(SampleOneAt(50ms).process_state, "T");
  EXPECT_THAT(SampleAt(60ms), IsEmpty());
}

TEST_F(ProgressSamplerTest, AProcessThatServesANewGenerationBringsNoStepsOfTheFormer) {
  FakeRank rank(1);
  rank.Finish(40);
  rank.writer->values().phase = TrainPhase::kForming;
  rank.writer->Publish();
  Add(rank, 2);
  const RankProgress forming = SampleOneAt(0s);
  EXPECT_EQ(forming.step, 0);
  EXPECT_EQ(forming.phase, TrainPhase::kForming);
  EXPECT_GT(forming.stores, 0u);
  rank.writer->values().generation = 2;
  rank.Finish(39);
  EXPECT_EQ(SampleOneAt(1s).step, 39);
}

TEST_F(ProgressSamplerTest, TheLastStepOfAnEndedRankIsReportedAtOnceAndKept) {
  FakeRank rank;
  Add(rank);
  rank.Finish(1);
  SampleAt(0ms);
  rank.Finish(2);
  sampler_.EndRank(kJob, 0, kStart);
  EXPECT_EQ(SampleOneAt(1ms).step, 2);
  EXPECT_FALSE(sampler_.AnyRunning());
  EXPECT_THAT(SampleAt(1s), IsEmpty());
  ASSERT_TRUE(sampler_.Last(kJob, 0).has_value());
  EXPECT_EQ(sampler_.Last(kJob, 0)->step, 2);
  EXPECT_EQ(sampler_.Last(kJob, 0)->process_state, "");
  EXPECT_FALSE(sampler_.Last(kJob, 1).has_value());
  EXPECT_FALSE(sampler_.Last({"0ddba11"}, 0).has_value());
}

TEST_F(ProgressSamplerTest, ARankThatANewGenerationDoesNotHaveHereIsShownForThreeScrapes) {
  FakeRank old_rank, new_rank;
  Add(old_rank, 1, 0);
  Add(old_rank, 1, 1);
  Add(new_rank, 2, 0);
  const auto series = sampler_.AllSeries(kStart);
  ASSERT_EQ(series.size(), 2u);
  EXPECT_EQ(series[0].generation, 2);
  EXPECT_EQ(series[1].generation, 1);
  EXPECT_EQ(series[1].rank, 1);
  EXPECT_EQ(sampler_.AllSeries(kStart + 44s).size(), 2u);
  EXPECT_EQ(sampler_.AllSeries(kStart + 46s).size(), 1u);
  EXPECT_EQ(SampleOneAt(0s).rank, 0) << "the coordinator hears of the new one alone";
}

TEST_F(ProgressSamplerTest, ARankThatIsReplacedGoesOnCounting) {
  FakeRank first, second;
  Add(first);
  first.Finish(1);
  first.Finish(2);
  sampler_.EndRank(kJob, 0, kStart);
  process_->start_time = 200;
  Add(second, 2, 0);
  second.Finish(3);
  SampleAt(1s);
  const auto series = sampler_.AllSeries(kStart + 1s);
  ASSERT_EQ(series.size(), 1u);
  EXPECT_EQ(series[0].totals.steps, 3);
  EXPECT_EQ(series[0].values.steps_done, 1);
}

TEST_F(ProgressSamplerTest, AnEndedRankIsShownForThreeScrapesAlsoWhileItsJobGoesOnElsewhere) {
  FakeRank rank;
  Add(rank);
  rank.Finish(1);
  sampler_.EndRank(kJob, 0, kStart);
  EXPECT_EQ(sampler_.AllSeries(kStart + 44s).size(), 1u);
  EXPECT_THAT(sampler_.AllSeries(kStart + 46s), IsEmpty());
  process_->start_time = 200;
  FakeRank again;
  Add(again, 2, 0);
  again.Finish(2);
  SampleAt(60s);
  EXPECT_EQ(sampler_.AllSeries(kStart + 60s).at(0).totals.steps, 2) << "what it counted is kept";
}

TEST_F(ProgressSamplerTest, ReportsHowLongNoCollectiveHasEndedWhileOneIsUnderWay) {
  FakeRank rank;
  const auto cell = ClaimCell(std::shared_ptr<ProgressWriter>(std::move(rank.writer)), "world");
  cell->enqueued = 5;
  cell->completed = 4;
  Add(rank);
  SampleAt(2s);
  EXPECT_NEAR(sampler_.AllSeries(kStart + 3s).at(0).inflight_seconds, 3, 1e-9);
  cell->completed = 5;
  SampleAt(4s);
  EXPECT_EQ(sampler_.AllSeries(kStart + 9s).at(0).inflight_seconds, 0);
  cell->enqueued = 6;
  SampleAt(5s);
  EXPECT_NEAR(sampler_.AllSeries(kStart + 6s).at(0).inflight_seconds, 1, 1e-9);
}

TEST_F(ProgressSamplerTest, FiguresAreShownWhereTheRankKeepsThem) {
  FakeRank rank;
  auto figures = FiguresWriter::Map(rank.page.get());
  ASSERT_TRUE(figures.ok());
  TrainingFigures told;
  told.samples_done = 16;
  told.mfu = 0.4;
  (*figures)->Publish(told);
  Add(rank);
  const auto series = sampler_.AllSeries(kStart);
  ASSERT_EQ(series.size(), 1u);
  EXPECT_EQ(series[0].totals.samples, 16);
  EXPECT_EQ(series[0].figures.mfu, 0.4);
}

TEST_F(ProgressSamplerTest, TheMemoryOfARanksGpuAndItsRoutersAreReportedWithItsProgress) {
  FakeRank rank;
  auto figures = FiguresWriter::Map(rank.page.get());
  ASSERT_TRUE(figures.ok());
  TrainingFigures told;
  told.device = {.capacity = 80, .allocated = 50, .reserved = 60};
  told.routers = {.experts = 4, .largest_share = 0.5, .entropy = 0.8, .idle = 1};
  (*figures)->Publish(told);
  Add(rank);
  const std::vector<Progress> news = sampler_.Sample(kStart, 1s);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].ranks.at(0).device_bytes, 60u);
  EXPECT_EQ(news[0].ranks.at(0).device_capacity_bytes, 80u);
  EXPECT_EQ(news[0].ranks.at(0).routers,
            (RouterProgress{.largest_share = 0.5, .entropy = 0.8, .idle = 1}));
}

TEST_F(ProgressSamplerTest, AnEndedJobsValuesStayForAWhile) {
  FakeRank rank;
  Add(rank);
  sampler_.EndRank(kJob, 0, kStart);
  sampler_.EndJob(kJob, kStart);
  EXPECT_EQ(sampler_.AllSeries(kStart + 44s).size(), 1u);
  EXPECT_THAT(sampler_.AllSeries(kStart + 46s), IsEmpty());
}

TEST_F(ProgressSamplerTest, APageOfAnotherLayoutIsRefused) {
  const UniqueFd null;
  EXPECT_FALSE(sampler_.AddPage(kJob, "chat", 1, 0, kPid, null, kStart).ok());
  EXPECT_FALSE(sampler_.AnyRunning());
}

TEST_F(ProgressSamplerTest, WhatSamplingDoesIsCounted) {
  FakeRank rank;
  Add(rank);
  SampleAt(0s);
  SampleAt(10ms);
  EXPECT_EQ(sampler_.totals().pages, 3u);
  EXPECT_GT(sampler_.totals().cpu_seconds, 0);
  EXPECT_GE(sampler_.NextSampleIn(), 50ms);
  EXPECT_LE(sampler_.NextSampleIn(), 1s);
}

}  // namespace
}  // namespace muster::worker
