#include "trainer/plan/flops.h"

#include <gtest/gtest.h>

#include "trainer/plan/testing/plan_testing.h"

namespace muster {
namespace {

// KempnerForge on one H200: 10,471 tokens/s at 4096 tokens are 57.8 % of 989 TFLOP/s.
TEST(FlopsTest, CountsAsPublishedFiguresDo) {
  const double flops = ModelFlops(Llama8B(), {.length = 4096});
  EXPECT_NEAR(ModelFlopsUtilization(flops, 10471, 1, 989), 0.578, 0.002);
}

TEST(FlopsTest, UtilizationIsOfAllDevices) {
  const double flops = ModelFlops(Llama8B(), {.length = 4096});
  EXPECT_NEAR(ModelFlopsUtilization(flops, 8 * 10471, 8, 989),
              ModelFlopsUtilization(flops, 10471, 1, 989), 1e-12);
  EXPECT_EQ(ModelFlopsUtilization(flops, 10471, 1, 0), 0);
}

TEST(FlopsTest, WhatIsComputedAgainIsExecutedAndNotTheModels) {
  const FlopsOptions kept{.length = 4096, .checkpointing = ActivationCheckpointing::kNone};
  const FlopsOptions again{.length = 4096, .checkpointing = ActivationCheckpointing::kFull};
  EXPECT_EQ(ModelFlops(Llama8B(), kept), ModelFlops(Llama8B(), again));
  const double ratio = ExecutedFlops(Llama8B(), again) / ExecutedFlops(Llama8B(), kept);
  EXPECT_GT(ratio, 1.2);
  EXPECT_LT(ratio, 4.0 / 3);
}

// No gradients of frozen weights: 2 N of 6 N less.
TEST(FlopsTest, AdaptersSaveAThirdOfTheWeightsOperations) {
  const double all = ModelFlops(Llama8B(), {.length = 1});
  const double adapters = ModelFlops(Llama8B(), {.length = 1, .adapter_parameters = 1});
  EXPECT_NEAR(adapters / all, 2.0 / 3, 1e-3);
}

TEST(FlopsTest, AnEmbeddingMultipliesNothing) {
  ModelConfig wide = Llama8B();
  wide.vocab_size *= 2;
  const auto more = static_cast<double>(Llama8B().vocab_size * Llama8B().hidden_size);
  EXPECT_NEAR(ExecutedFlops(wide, {}) - ExecutedFlops(Llama8B(), {}), 6 * more, 1);
  EXPECT_NEAR(ModelFlops(wide, {}) - ModelFlops(Llama8B(), {}), 12 * more, 1);
}

}  // namespace
}  // namespace muster
