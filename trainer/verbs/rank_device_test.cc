#include "trainer/verbs/rank_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace muster {
namespace {

using ::testing::HasSubstr;

TEST(ChooseGpu, TakesTheOneThatTheRankWasShown) {
  EXPECT_EQ(*ChooseGpu(1, 5, /*shown_its_own=*/true, /*may_share=*/false), 0);
}

TEST(ChooseGpu, TakesTheOneOfTheLocalRankWhereAllAreVisible) {
  EXPECT_EQ(*ChooseGpu(8, 5, false, false), 5);
  EXPECT_EQ(*ChooseGpu(8, 5, true, false), 5);
}

TEST(ChooseGpu, LetsRanksWithHostIdsShare) {
  EXPECT_EQ(*ChooseGpu(2, 3, false, true), 1);
  EXPECT_EQ(*ChooseGpu(1, 3, false, true), 0);
}

TEST(ChooseGpu, RefusesMoreRanksThanGpus) {
  const Status status = ChooseGpu(1, 1, false, false).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("no GPU for local rank 1: 1 can be seen"));
}

TEST(PrecisionOn, FallsBackToFp16BeforeComputeCapability8) {
  EXPECT_EQ(PrecisionOn(7, MixedPrecision::kBf16), MixedPrecision::kFp16);
  EXPECT_EQ(PrecisionOn(8, MixedPrecision::kBf16), MixedPrecision::kBf16);
  EXPECT_EQ(PrecisionOn(7, MixedPrecision::kFp32), MixedPrecision::kFp32);
  EXPECT_EQ(PrecisionOn(7, MixedPrecision::kFp64), MixedPrecision::kFp64);
}

TEST(RankDevice, OfACpuJobNeedsNoPlugin) {
  JobSpec spec;
  const auto made = MakeRankDevice({}, &spec);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(made->ops->is_host());
  EXPECT_TRUE(made->notes.empty());
}

TEST(RankDevice, OfACudaJobSaysWhatIsMissing) {
  ::setenv("MUSTER_CUDA_PLUGIN", "/nowhere/libmuster_cuda.so", 1);
  JobSpec spec;
  spec.resources.device = "cuda";
  EXPECT_THAT(MakeRankDevice({}, &spec).status().message(),
              HasSubstr("there is no CUDA plug-in at /nowhere/libmuster_cuda.so"));
  ::unsetenv("MUSTER_CUDA_PLUGIN");
}

}  // namespace
}  // namespace muster
