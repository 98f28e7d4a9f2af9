// Evaluations of the sharded engine between its steps, its ranks as threads; parity_test.cc holds
// their numbers against the reference.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/parity/gang_run.h"

namespace muster::parity {
namespace {

GangOptions Gang(int world_size, bool shares, const FsdpSpec& fsdp) {
  GangOptions options;
  options.world_size = world_size;
  options.steps = 4;
  options.shares_memory = shares;
  options.fsdp = fsdp;
  return options;
}

// Whoever holds the weights, and wherever.
std::vector<GangOptions> Gangs() {
  std::vector<GangOptions> gangs;
  for (const bool shares : {true, false}) {
    gangs.push_back(Gang(3, shares, {.mixed_precision = MixedPrecision::kBf16}));
    gangs.push_back(Gang(
        2, shares,
        {.strategy = ShardingStrategy::kShardGradOp, .mixed_precision = MixedPrecision::kFp32}));
    gangs.back().model.tied = true;
    gangs.push_back(Gang(2, shares, {.mixed_precision = MixedPrecision::kFp32}));
    gangs.back().model.lora.emplace().target_modules = {"q_proj", "down_proj"};
  }
  for (const bool offloads : {false, true}) {
    gangs.push_back(Gang(2, /*shares=*/false,
                         {.mixed_precision = MixedPrecision::kFp32,
                          .activation_checkpointing = ActivationCheckpointing::kFullOffload,
                          .cpu_offload = offloads}));
    gangs.back().apart_from_host = true;
  }
  return gangs;
}

// Looking at rows between steps changes no bit of what is trained.
TEST(Evaluating, ChangesNothing) {
  for (GangOptions options : Gangs()) {
    const std::vector<RankRun> plain = RunGang(options);
    options.evaluates = true;
    const std::vector<RankRun> evaluated = RunGang(options);
    for (std::size_t rank = 0; rank < plain.size(); ++rank) {
      EXPECT_EQ(Losses(evaluated[rank]), Losses(plain[rank]));
      EXPECT_TRUE(evaluated[rank].arrays == plain[rank].arrays);
      EXPECT_EQ(evaluated[rank].evaluations.size(), 5u);
    }
  }
}

TEST(Evaluating, AFaultLeavesTheStateOfTheLastStep) {
  for (const bool shares : {true, false}) {
    GangOptions options = Gang(3, shares, {.mixed_precision = MixedPrecision::kFp32});
    const std::vector<RankRun> undisturbed = RunGang(options);
    options.broken_evaluation = 1;
    options.evaluates = true;
    const std::vector<RankRun> broken = RunGang(options);
    for (std::size_t rank = 0; rank < broken.size(); ++rank) {
      EXPECT_EQ(Losses(broken[rank]), Losses(undisturbed[rank]));
      EXPECT_TRUE(broken[rank].arrays == undisturbed[rank].arrays);
      EXPECT_EQ(broken[rank].evaluations.size(), 5u) << "and the numbers begin anew";
      EXPECT_EQ(broken[rank].evaluations[2].labels, broken[rank].evaluations[1].labels);
    }
  }
}

// Between numbers of ranks only the order of the sums of batches differs, and among the ranks of
// one gang nothing.
TEST(Evaluating, NumbersDoNotDependOnHowRowsAreSharedOut) {
  GangOptions options = Gang(1, /*shares=*/true, {.mixed_precision = MixedPrecision::kFp32});
  options.steps = 0;
  options.evaluates = true;
  const EvalNumbers alone = RunGang(options)[0].evaluations[0];
  EXPECT_GT(alone.labels, 0);
  EXPECT_NEAR(std::log(alone.perplexity()), alone.loss, 1e-12);
  for (const int world_size : {2, 3, 5}) {
    options.world_size = world_size;
    const std::vector<RankRun> runs = RunGang(options);
    for (const RankRun& run : runs) {
      EXPECT_LE(Relative(run.evaluations[0].loss, alone.loss), 1e-12);
      EXPECT_EQ(run.evaluations[0].loss, runs[0].evaluations[0].loss);
      EXPECT_EQ(run.evaluations[0].labels, alone.labels);
      EXPECT_EQ(run.evaluations[0].correct, alone.correct);
    }
  }
}

}  // namespace
}  // namespace muster::parity
