#include "worker/agent/progress_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using testing::IsEmpty;
using namespace std::chrono_literals;

const JobId kJob{"00c0ffee00"};
constexpr Duration kInterval = 100ms;

// A rank as the sampler sees it.
struct FakeRank {
  FakeRank() {
    page = CreateProgressPage().value();
    writer = ProgressWriter::Map(page.get()).value();
  }
  void Finish(Step step) {
    writer->values().step = step;
    writer->values().loss = 1.0 / static_cast<double>(step);
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
  ProgressSampler sampler_;
};

TEST_F(ProgressSamplerTest, TellsChangesAndNothingElse) {
  FakeRank rank;
  ASSERT_TRUE(sampler_.AddPage(kJob, "chat", 1, 0, rank.page).ok());
  EXPECT_THAT(SampleAt(0s), IsEmpty());
  rank.Finish(4);
  const auto news = SampleAt(1s);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].job, kJob);
  EXPECT_EQ(news[0].generation, 1);
  ASSERT_EQ(news[0].ranks.size(), 1u);
  EXPECT_EQ(news[0].ranks[0].step, 4);
  EXPECT_EQ(news[0].ranks[0].loss, 0.25);
  EXPECT_THAT(SampleAt(2s), IsEmpty());
}

TEST_F(ProgressSamplerTest, TellsAtMostOnceAnInterval) {
  FakeRank rank;
  ASSERT_TRUE(sampler_.AddPage(kJob, "chat", 1, 0, rank.page).ok());
  rank.Finish(1);
  EXPECT_EQ(SampleAt(0ms).size(), 1u);
  rank.Finish(2);
  EXPECT_THAT(SampleAt(99ms), IsEmpty());
  EXPECT_EQ(SampleAt(100ms).size(), 1u);
}

TEST_F(ProgressSamplerTest, TheLastStepOfAnEndedRankIsToldAtOnce) {
  FakeRank rank;
  ASSERT_TRUE(sampler_.AddPage(kJob, "chat", 1, 0, rank.page).ok());
  rank.Finish(1);
  SampleAt(0ms);
  rank.Finish(2);
  sampler_.EndRank(kJob, 0);
  const auto news = SampleAt(1ms);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].ranks[0].step, 2);
  EXPECT_FALSE(sampler_.AnyRunning());
}

TEST_F(ProgressSamplerTest, ANewGenerationDropsTheOld) {
  FakeRank old_rank, new_rank;
  ASSERT_TRUE(sampler_.AddPage(kJob, "chat", 1, 0, old_rank.page).ok());
  ASSERT_TRUE(sampler_.AddPage(kJob, "chat", 1, 1, old_rank.page).ok());
  ASSERT_TRUE(sampler_.AddPage(kJob, "chat", 2, 0, new_rank.page).ok());
  const auto series = sampler_.AllSeries(TimePoint() + 1h);
  ASSERT_EQ(series.size(), 1u);
  EXPECT_EQ(series[0].generation, 2);
}

TEST_F(ProgressSamplerTest, AnEndedJobsValuesStayForAWhile) {
  FakeRank rank;
  ASSERT_TRUE(sampler_.AddPage(kJob, "chat", 1, 0, rank.page).ok());
  sampler_.EndRank(kJob, 0);
  sampler_.EndJob(kJob, TimePoint() + 1h);
  EXPECT_EQ(sampler_.AllSeries(TimePoint() + 1h + 59s).size(), 1u);
  EXPECT_THAT(sampler_.AllSeries(TimePoint() + 1h + 61s), IsEmpty());
}

TEST_F(ProgressSamplerTest, APageOfAnotherLayoutIsRefused) {
  const UniqueFd null;
  EXPECT_FALSE(sampler_.AddPage(kJob, "chat", 1, 0, null).ok());
  EXPECT_FALSE(sampler_.AnyRunning());
}

}  // namespace
}  // namespace muster::worker
