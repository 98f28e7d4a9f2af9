#include "trainer/plan/time_plan.h"

#include <gtest/gtest.h>

#include "trainer/plan/testing/plan_testing.h"

namespace muster {
namespace {

Hardware H100() { return *FindHardware("H100-80"); }

TimePlan Planned(const PlanJob& job, const Hardware& hardware) {
  const Result<TimePlan> plan = PlanTime(job, hardware, std::nullopt);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  return plan.ok() ? *plan : TimePlan{};
}

// docs/engine.md: two gathers but for the blocks that are still there, one reduction in fp32.
TEST(TimePlanTest, AMicroBatchGathersTwiceAndReducesOnce) {
  const TimePlan plan = Planned(GpuJob(Llama8B(), 1, 8), H100());
  const double block = 218.1e6, ends = 2 * 128256.0 * 4096;
  EXPECT_NEAR(plan.traffic.inside_gathered, 7.0 / 8 * 2 * (ends + (32 + 30) * block), 3e7);
  EXPECT_NEAR(plan.traffic.inside_reduced, 7.0 / 8 * 4 * 8.03e9, 3e7);
  EXPECT_EQ(plan.traffic.between_gathered, 0);
}

TEST(TimePlanTest, KeepingWhatIsGatheredGathersOnce) {
  PlanJob job = GpuJob(Llama8B(), 1, 8);
  job.train.fsdp.strategy = ShardingStrategy::kShardGradOp;
  job.train.batch.accumulation = 4;
  EXPECT_NEAR(Planned(job, H100()).traffic.inside_gathered, 7.0 / 8 * 2 * 8.03e9, 3e7);
}

TEST(TimePlanTest, AHybridSendsItsShardsBetweenNodes) {
  PlanJob job = GpuJob(Llama8B(), 2, 8);
  job.train.fsdp.strategy = ShardingStrategy::kHybridShard;
  const Traffic traffic = Planned(job, H100()).traffic;
  EXPECT_EQ(traffic.between_gathered, 0);
  // Two nodes: an all-reduce of n bytes sends n. All eight shards together are the model.
  EXPECT_NEAR(traffic.between_reduced, 4 * 8.03e9, 3e7);
}

TEST(TimePlanTest, ReducingOncePerStepSavesTraffic) {
  PlanJob job = GpuJob(Llama8B(), 2, 8);
  job.train.batch.accumulation = 4;
  const double each = Planned(job, H100()).traffic.between_reduced;
  job.train.fsdp.reduce_every_micro_batch = false;
  EXPECT_NEAR(Planned(job, H100()).traffic.between_reduced, each / 4, 1);
}

// Rows of two experts a token travel four times, and a fifth where backward computes again.
TEST(TimePlanTest, DividedExpertsAreNotGatheredAndTheirRowsTravel) {
  PlanJob job = GpuJob(Mixture47B(), 2, 8);
  const TimePlan whole = Planned(job, H100());
  job.train.fsdp.expert_parallel = 8;
  const TimePlan divided = Planned(job, H100());
  const double rows = 2048.0 * 2 * 32, width = 4096.0 * 2;
  // Of 47.5 B parameters 45.1 B are experts', whose halves each rank of a node gets from the other
  // node alone.
  const double rest = 2.39e9, experts = 45.1e9;
  EXPECT_NEAR(divided.traffic.inside_reduced, 15.0 / 16 * 4 * rest, 1e9);
  EXPECT_NEAR(divided.traffic.between_reduced, 4 * (15.0 / 16 * rest + experts / 2), 2e9);
  EXPECT_NEAR(whole.traffic.inside_reduced, 15.0 / 16 * 4 * (rest + experts), 2e9);
  EXPECT_GT(divided.traffic.inside_gathered, 5 * rows * width * 7 / 8);
  EXPECT_LT(divided.step_seconds, whole.step_seconds);
  EXPECT_GE(divided.exposed_seconds, 5 * rows * width * 7 / 8 / H100().link_rate * 0.99);
}

TEST(TimePlanTest, FrozenExpertsThatAreDividedAreNotGatheredEither) {
  PlanJob job = GpuJob(Mixture47B(), 2, 8);
  job.train.lora.emplace().target_modules = {"q_proj"};
  const TimePlan whole = Planned(job, H100());
  job.train.fsdp.expert_parallel = 8;
  const TimePlan divided = Planned(job, H100());
  EXPECT_LT(divided.traffic.inside_gathered, whole.traffic.inside_gathered / 5);
  EXPECT_NEAR(divided.traffic.inside_reduced, whole.traffic.inside_reduced, 1);
  EXPECT_LT(divided.step_seconds, whole.step_seconds);
}

// The published threshold for 8 ranks at 600 TFLOP/s over 45 GB/s: 15,500 tokens with fp32 sums.
TEST(TimePlanTest, TellsFromHowManyTokensOnCommunicationIsHidden) {
  PlanJob job = GpuJob(Llama8B(), 8, 1);
  job.train.fsdp.activation_checkpointing = ActivationCheckpointing::kNone;
  Hardware hardware = H100();
  hardware.achievable = 600.0 / hardware.peak_tflops;
  const TimePlan plan = Planned(job, hardware);
  EXPECT_NEAR(static_cast<double>(plan.hiding_tokens), 15500, 1500);
  EXPECT_GT(plan.exposed_seconds, 0);
  job.train.batch.per_rank = 10;  // rows of 2048 tokens
  EXPECT_EQ(Planned(job, hardware).exposed_seconds, 0);
}

// torchtitan, 8 H100: 5,762 to 6,667 tokens/s per GPU with 8192 tokens and selective recompute.
TEST(TimePlanTest, SpeedIsThatOfPublishedRuns) {
  PlanJob job = GpuJob(Llama8B(), 1, 8);
  job.train.data.max_seq_len = 8192;
  job.train.batch.per_rank = 2;
  job.train.fsdp.activation_checkpointing = ActivationCheckpointing::kSelective;
  const double per_gpu = Planned(job, H100()).tokens_per_second / 8;
  EXPECT_GT(per_gpu, 5500);
  EXPECT_LT(per_gpu, 9000);
}

TEST(TimePlanTest, HoursAreStepsTimesSeconds) {
  const TimePlan plan = Planned(GpuJob(Llama8B(), 1, 8), H100());
  ASSERT_TRUE(plan.hours);
  EXPECT_NEAR(*plan.hours, 1000 * plan.step_seconds / 3600, 1e-9);
  PlanJob epochs = GpuJob(Llama8B(), 1, 8);
  epochs.train.schedule.max_steps = 0;
  epochs.train.schedule.epochs = 2;
  EXPECT_FALSE(PlanTime(epochs, H100(), std::nullopt)->steps);
  EXPECT_EQ(PlanTime(epochs, H100(), 1001)->steps, 251);  // 2,002 rows in batches of 8
}

TEST(TimePlanTest, AnUnknownPeakIsSaid) {
  Hardware hardware = H100();
  hardware.peak_tflops = 0;
  EXPECT_FALSE(PlanTime(GpuJob(Llama8B(), 1, 8), hardware, std::nullopt).ok());
}

}  // namespace
}  // namespace muster
