// The short form of the simulation, and what must be true of the simulation itself.

#include <gtest/gtest.h>

#include "tests/simulation/world.h"

namespace muster::sim {
namespace {

constexpr int kSeeds = 200;
constexpr int kParts = 20;
// Seeds that once failed.
constexpr std::uint64_t kRegressions[] = {
    170,   // a node was called drained before it was heard of again
    314,   // the same, with a standby left there
    575,   // a process that survived SIGKILL was forgotten with its job, and its slot given away
    974,   // a job had succeeded whose ranks were asked to stop by a coordinator that was gone
    1775,  // what an overtaken commit was to remove was taken back after a newer one had removed it
};

// With the options that muster-simulation has by default.
constexpr std::uint64_t kLargeRegressions[] = {
    17,   // that a process had survived SIGKILL was lost with the stream, and its slot given away
    86,   // the oracle forgot that a resume waited behind the suspend in a stopped coordinator
    172,  // the oracle took a minute of faults without one job for a standstill
};

// With at most 16 nodes.
constexpr std::uint64_t kSmallestRegressions[] = {
    113,  // checkpoints given up after a restart had the newest verified one pruned before them
};

WorldOptions Small(std::uint64_t seed, int max_nodes = 64) {
  return {.seed = seed, .min_nodes = 4, .max_nodes = max_nodes, .jobs = 12};
}

std::string Describe(const WorldOptions& options, const RunResult& result) {
  return "seed " + std::to_string(options.seed) + " violates '" + result.violation->invariant +
         "': " + result.violation->what + "\n" + result.timeline;
}

class SimulationTest : public ::testing::TestWithParam<int> {};

TEST_P(SimulationTest, WhateverHappensTheInvariantsHoldAndEverythingEnds) {
  std::size_t archived = 0;
  int stalls = 0;
  for (int i = 0; i < kSeeds / kParts; ++i) {
    const WorldOptions options = Small(static_cast<std::uint64_t>(GetParam() + i * kParts));
    const RunResult result = World(options).Run();
    ASSERT_FALSE(result.violation) << Describe(options, result);
    archived += result.archived_jobs;
    stalls += result.stalls;
  }
  EXPECT_GT(archived, 0u) << "no job was archived in any of the runs";
  EXPECT_TRUE(stalls > 0 || GetParam() % 2 == 0) << "no event waited for the coordinator's disk";
}

TEST(SimulationScrubTest, CheckpointsOfArchivedJobsAreReadAgainThroughCrashes) {
  std::size_t scrubs = 0;
  for (std::uint64_t seed = 200; seed < 206; ++seed) {
    WorldOptions options = Small(seed);
    options.scrub_interval = std::chrono::seconds(4);
    const RunResult result = World(options).Run();
    ASSERT_FALSE(result.violation) << Describe(options, result);
    scrubs += result.archive_scrubs;
  }
  EXPECT_GT(scrubs, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulationTest, ::testing::Range(0, kParts));

TEST(SimulationRegressionTest, SeedsThatOnceFailed) {
  std::vector<WorldOptions> runs;
  for (const std::uint64_t seed : kRegressions) runs.push_back(Small(seed));
  for (const std::uint64_t seed : kSmallestRegressions) runs.push_back(Small(seed, 16));
  for (const std::uint64_t seed : kLargeRegressions) runs.push_back({.seed = seed});
  for (const WorldOptions& options : runs) {
    const RunResult result = World(options).Run();
    EXPECT_FALSE(result.violation) << Describe(options, result);
  }
}

TEST(SimulationReplayTest, ASeedTwiceIsTheSameRun) {
  for (std::uint64_t seed = 100; seed < 104; ++seed) {
    const RunResult once = World(Small(seed)).Run();
    const RunResult again = World(Small(seed)).Run();
    EXPECT_GT(once.hashes.size(), 3u);
    EXPECT_EQ(once.hashes, again.hashes) << "seed " << seed;
    EXPECT_EQ(once.events, again.events);
  }
}

}  // namespace
}  // namespace muster::sim
