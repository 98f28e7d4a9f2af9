#include "trainer/model/block_inputs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/model/testing/late_copies_testing.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace muster {
namespace {

constexpr std::int64_t kBytesOfOne = 256;  // [3, 5] fp32, rounded up to the arena's alignment

class BlockInputsIn : public testing::TestWithParam<Arena::Memory> {
 protected:
  const std::unique_ptr<DeviceOps> cpu_ = MakeCpuOps();
  LateCopies ops_{*cpu_};
};

TEST_P(BlockInputsIn, ComeBackInReverseOrder) {
  for (const int blocks : {1, 2, 3, 6}) {
    BlockInputs inputs(ops_, blocks, GetParam());
    inputs.Fit(3, 5, at::kFloat);
    for (int round = 0; round < 2; ++round) {
      for (int b = 0; b < blocks; ++b) {
        inputs.Place(b).fill_(10 * round + b);
        inputs.Written(b);
      }
      for (int b = blocks - 1; b >= 0; --b) {
        EXPECT_TRUE(at::equal(inputs.Fetch(b), at::full({3, 5}, 10.0f * round + b)))
            << "block " << b << " of " << blocks << ", round " << round;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Memories, BlockInputsIn,
                         testing::Values(Arena::Memory::kDevice, Arena::Memory::kHost));

TEST(BlockInputs, TakeTwoSlotsOfTheDeviceWhenTheyWaitInHostMemory) {
  const std::unique_ptr<DeviceOps> ops = MakeCpuOps();
  BlockInputs kept(*ops, 6, Arena::Memory::kDevice), offloaded(*ops, 6, Arena::Memory::kHost);
  kept.Fit(3, 5, at::kFloat);
  offloaded.Fit(3, 5, at::kFloat);
  EXPECT_EQ(kept.device_bytes(), 6 * kBytesOfOne);
  EXPECT_EQ(kept.host_bytes(), 0);
  EXPECT_EQ(offloaded.device_bytes(), 2 * kBytesOfOne);
  EXPECT_EQ(offloaded.host_bytes(), 4 * kBytesOfOne);
}

TEST(BlockInputs, LeaveTheDeviceAndComeBackOnceEach) {
  const std::unique_ptr<DeviceOps> cpu = MakeCpuOps();
  LateCopies ops(*cpu);
  BlockInputs inputs(ops, 6, Arena::Memory::kHost);
  inputs.Fit(3, 5, at::kFloat);
  for (int b = 0; b < 6; ++b) {
    inputs.Place(b).fill_(b);
    inputs.Written(b);
  }
  EXPECT_EQ(ops.begun(), 4) << "the last two stay";
  for (int b = 5; b >= 0; --b) inputs.Fetch(b);
  EXPECT_EQ(ops.begun(), 8);
}

}  // namespace
}  // namespace muster
