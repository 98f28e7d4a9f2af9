#include "trainer/report/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/testing/temp_dir.h"
#include "trainer/comm/group/testing/in_process_communicator.h"
#include "trainer/report/profile_report.h"

namespace muster {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-9;

class HandClock final : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  std::int64_t UnixMillis() const override { return 0; }
  void Pass(int milliseconds) { now_ += std::chrono::milliseconds(milliseconds); }

 private:
  TimePoint now_;
};

double Seconds(const Profiler& profiler, TracePhase phase) {
  return profiler.totals().phases[static_cast<std::size_t>(phase)];
}

TEST(Profiler, RecordsOnlyTheStepsThatWereAskedFor) {
  HandClock clock;
  Profiler profiler({.start = 2, .steps = 2}, clock);
  for (Step step = 1; step <= 5; ++step) {
    EXPECT_EQ(profiler.StartsWith(step), step == 2);
    profiler.BeginStep(step);
    EXPECT_EQ(profiler.recording(), step == 2 || step == 3);
    {
      const TraceSpan span(&profiler, TracePhase::kForward, "block.0", 1);
      clock.Pass(10);
    }
    clock.Pass(1);
    profiler.EndStep();
  }
  EXPECT_EQ(profiler.totals().steps, 2);
  EXPECT_NEAR(profiler.totals().seconds, 0.022, kTolerance);
  EXPECT_NEAR(Seconds(profiler, TracePhase::kForward), 0.020, kTolerance);
}

TEST(Profiler, WithoutAProfileNothingIsRecorded) {
  HandClock clock;
  Profiler profiler({}, clock);
  profiler.BeginStep(1);
  EXPECT_FALSE(profiler.recording());
  profiler.EndStep();
  EXPECT_FALSE(profiler.Covers(1));
  EXPECT_EQ(profiler.totals().steps, 0);
}

TEST(Profiler, ARunThatResumesWithinTheProfileRecordsTheRest) {
  HandClock clock;
  Profiler profiler({.start = 2, .steps = 3}, clock);
  EXPECT_TRUE(profiler.StartsWith(4));
  profiler.BeginStep(4);
  profiler.EndStep();
  EXPECT_EQ(profiler.first_step(), 4);
}

TEST(Profiler, TheInnermostSpanCounts) {
  HandClock clock;
  Profiler profiler({.start = 1, .steps = 1}, clock);
  profiler.BeginStep(1);
  {
    const TraceSpan forward(&profiler, TracePhase::kForward, "block.0", 1);
    clock.Pass(5);
    {
      const TraceSpan wait(&profiler, TracePhase::kGatherWait, "block.0", 1);
      clock.Pass(20);
    }
    clock.Pass(2);
  }
  profiler.EndStep();
  EXPECT_NEAR(Seconds(profiler, TracePhase::kForward), 0.007, kTolerance);
  EXPECT_NEAR(Seconds(profiler, TracePhase::kGatherWait), 0.020, kTolerance);
  ASSERT_EQ(profiler.totals().units.size(), 2u);
  EXPECT_NEAR(profiler.totals().units[1].seconds, 0.007, kTolerance) << "a wait is no work";
}

TEST(Profiler, KeepsABoundedNumberOfEventsAndAllOfTheTime) {
  HandClock clock;
  Profiler profiler({.start = 1, .steps = 1}, clock);
  profiler.BeginStep(1);
  constexpr int kSpans = Profiler::kMaxEvents + 99;
  for (int i = 0; i < kSpans; ++i) {
    const TraceSpan span(&profiler, TracePhase::kData, "rows");
    clock.Pass(1);
  }
  profiler.EndStep();
  EXPECT_EQ(profiler.events().size(), Profiler::kMaxEvents);
  EXPECT_EQ(profiler.events_left_out(), 100) << "99 spans and the step";
  EXPECT_NEAR(Seconds(profiler, TracePhase::kData), kSpans * 1e-3, 1e-6);
}

// Two profiled steps of a rank: three blocks of `block_ms`, a planted delay in block 1, and waits.
void TakeSteps(Profiler& profiler, HandClock& clock, int planted_ms, int wait_ms) {
  for (Step step = 1; step <= 2; ++step) {
    profiler.BeginStep(step);
    {
      const TraceSpan span(&profiler, TracePhase::kData, "rows");
      clock.Pass(1);
    }
    for (int block = 0; block < 3; ++block) {
      const std::string name = "block." + std::to_string(block);
      const TraceSpan span(&profiler, TracePhase::kBackward, name, block + 1);
      clock.Pass(4);
      if (block == 1) clock.Pass(planted_ms);
    }
    {
      const TraceSpan span(&profiler, TracePhase::kReduceWait, "finish");
      clock.Pass(wait_ms);
    }
    clock.Pass(2);
    profiler.EndStep();
  }
}

// Runs `body` on every rank of a gang of threads.
void OnRanks(int ranks, const std::function<void(Communicator&)>& body) {
  InProcessGroup group(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto communicator = group.Join(rank);
      ASSERT_TRUE(communicator
                      ->Form({.generation = 1, .rank = rank, .world_size = ranks},
                             Deadline::After(std::chrono::seconds(10)))
                      .ok());
      body(*communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ProfileReport, NamesThePlantedSlowRankAndLayer) {
  const TempDirForTest dir;
  ProfileTable table;
  OnRanks(3, [&](Communicator& communicator) {
    const bool slow = communicator.rank() == 2;
    HandClock clock;
    Profiler profiler({.start = 1, .steps = 2}, clock);
    TakeSteps(profiler, clock, slow ? 30 : 0, slow ? 3 : 33);
    const auto gathered = GatherProfile(profiler, communicator);
    ASSERT_TRUE(gathered.ok()) << gathered.status().ToString();
    EXPECT_EQ(gathered->SlowestRank(), 2) << "on every rank";
    Status written;
    ASSERT_TRUE(WriteProfile(profiler, *gathered, dir / "profile", communicator, &written).ok());
    EXPECT_TRUE(written.ok()) << written.ToString();
    if (communicator.rank() == 0) table = *gathered;
  });
  ASSERT_EQ(table.ranks.size(), 3u);
  EXPECT_NEAR(table.ranks[0].total, 48, kTolerance);
  EXPECT_NEAR(table.ranks[0].Waits(), 33, kTolerance);
  EXPECT_NEAR(table.ranks[2].Other(), 2, kTolerance);
  ASSERT_EQ(table.SlowestUnit(), 2);
  EXPECT_EQ(table.units[2].name, "block.1");
  EXPECT_NEAR(table.units[2].mean, (4 + 4 + 34) / 3.0, kTolerance);

  const std::string text = ProfileText(table);
  EXPECT_THAT(text, HasSubstr("profile of steps 1 to 2, ms per step\n"));
  EXPECT_THAT(text, HasSubstr("slowest rank: 2, waits 3.00 ms; the others wait 33.00 ms\n"));
  EXPECT_THAT(text, HasSubstr("slowest layer: block.1, 14.00 ms (the median unit 4.00 ms)\n"));

  const Json json = Json::parse(*ReadFile(dir / "profile/table.json"));
  EXPECT_EQ(json["slowest_rank"], 2);
  EXPECT_EQ(json["slowest_layer"], "block.1");
  EXPECT_NEAR(json["ranks"][2]["backward"].get<double>(), 42, kTolerance);
  EXPECT_NEAR(json["ranks"][1]["reduce_wait"].get<double>(), 33, kTolerance);
}

TEST(ProfileReport, TheTraceHoldsAProcessForEachRank) {
  const TempDirForTest dir;
  OnRanks(2, [&](Communicator& communicator) {
    HandClock clock;
    Profiler profiler({.start = 1, .steps = 2}, clock);
    TakeSteps(profiler, clock, 0, 5);
    const auto table = GatherProfile(profiler, communicator);
    ASSERT_TRUE(table.ok());
    Status written;
    ASSERT_TRUE(WriteProfile(profiler, *table, dir / "profile", communicator, &written).ok());
    EXPECT_TRUE(written.ok()) << written.ToString();
  });
  const Json trace = Json::parse(*ReadFile(dir / "profile/trace.json"));
  int spans[2] = {0, 0};
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++spans[event["pid"].get<int>()];
    if (event["pid"] == 1 && event["name"] == "step 2") {
      EXPECT_EQ(event["ts"], 20'000);
      EXPECT_EQ(event["dur"], 20'000);
    }
    if (event["pid"] == 1 && event["name"] == "backward block.2" && event["ts"] < 20'000) {
      EXPECT_EQ(event["ts"], 9'000);
      EXPECT_EQ(event["dur"], 4'000);
      EXPECT_EQ(event["args"]["unit"], 3);
    }
  }
  EXPECT_EQ(spans[0], 2 * 6) << "rows, three blocks, a wait and the step itself";
  EXPECT_EQ(spans[1], 2 * 6);
  EXPECT_FALSE(std::filesystem::exists(dir / "profile/trace.json.writing"));
}

TEST(ProfileReport, AProfileThatCannotBeWrittenIsToldByRankZeroAlone) {
  const TempDirForTest dir;
  dir.Write("profile", "a file where a directory should be");
  OnRanks(2, [&](Communicator& communicator) {
    HandClock clock;
    Profiler profiler({.start = 1, .steps = 2}, clock);
    TakeSteps(profiler, clock, 0, 5);
    Status written;
    EXPECT_TRUE(WriteProfile(profiler, {}, dir / "profile", communicator, &written).ok());
    EXPECT_EQ(written.ok(), communicator.rank() == 1);
  });
}

TEST(ProfileReport, OneRankIsNotSlowerThanOthers) {
  OnRanks(1, [&](Communicator& communicator) {
    HandClock clock;
    Profiler profiler({.start = 1, .steps = 2}, clock);
    TakeSteps(profiler, clock, 0, 0);
    const auto table = GatherProfile(profiler, communicator);
    ASSERT_TRUE(table.ok());
    EXPECT_EQ(table->SlowestRank(), -1);
    EXPECT_TRUE(Json::parse(ProfileJson(*table))["slowest_rank"].is_null());
    EXPECT_EQ(ProfileText(*table).find("slowest rank"), std::string::npos);
  });
}

}  // namespace
}  // namespace muster
