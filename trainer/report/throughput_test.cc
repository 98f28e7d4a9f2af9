#include "trainer/report/throughput.h"

#include <gtest/gtest.h>

#include "trainer/plan/flops.h"
#include "trainer/plan/testing/plan_testing.h"

namespace muster {
namespace {

// Rows of 4096 tokens, half of which have a label.
constexpr DatasetStats kStats = {.rows = 10, .tokens = 40960, .label_tokens = 20480};

JobSpec Spec() {
  JobSpec spec;
  spec.train.emplace();
  return spec;
}

// KempnerForge: 10,471 tokens/s of this model on one H200 are 57.8 %.
TEST(ThroughputTest, CountsTokensWithoutALabelToo) {
  const Throughput throughput(Llama8B(), Llama8B().ParameterCount(), kStats, 1, {989, "given"});
  EXPECT_NEAR(throughput.Utilization(10471 / 2, 1.0), 0.578, 0.002);
  EXPECT_NEAR(throughput.Utilization(10471, 2.0), 0.578, 0.002);
}

TEST(ThroughputTest, AdaptersComputeLess) {
  const Throughput all(Llama8B(), Llama8B().ParameterCount(), kStats, 1, {989, "given"});
  const Throughput adapters(Llama8B(), 41943040, kStats, 1, {989, "given"});
  EXPECT_LT(adapters.Utilization(100, 1), 0.75 * all.Utilization(100, 1));
}

TEST(ThroughputTest, TheSummaryLeavesOutTheFirstStepAndNamesThePeak) {
  Throughput throughput(Llama8B(), Llama8B().ParameterCount(), kStats, 2, {989, "a data sheet"});
  throughput.Add(1, 100);
  EXPECT_EQ(throughput.Summary(), "");
  throughput.Add(10471, 1);
  EXPECT_EQ(throughput.Summary(),
            "20942 tokens/s, 10471 per device, MFU 57.8 % of 989 TFLOP/s (a data sheet)");
}

TEST(ThroughputTest, WithoutAPeakThereAreTokensAlone) {
  Throughput throughput(Llama8B(), Llama8B().ParameterCount(), kStats, 1, {});
  throughput.Add(1, 1);
  throughput.Add(50, 1);
  EXPECT_EQ(throughput.Utilization(50, 1), 0);
  EXPECT_EQ(throughput.Summary(), "100 tokens/s, 100 per device");
}

TEST(ThroughputTest, ThePeakIsTheJobsOrThatOfAKnownGpu) {
  JobSpec spec = Spec();
  EXPECT_EQ(FindPeak(spec, "CPU, avx512").tflops, 0);
  EXPECT_EQ(FindPeak(spec, "NVIDIA H200 (compute capability 9.0)").tflops, 989);
  spec.train->fsdp.mixed_precision = MixedPrecision::kFp32;
  EXPECT_EQ(FindPeak(spec, "NVIDIA H200").tflops, 0);
  spec.resources.peak_tflops = 67;
  EXPECT_EQ(FindPeak(spec, "NVIDIA H200").tflops, 67);
  EXPECT_EQ(FindPeak(spec, "NVIDIA H200").source, "resources.peak_tflops");
}

}  // namespace
}  // namespace muster
