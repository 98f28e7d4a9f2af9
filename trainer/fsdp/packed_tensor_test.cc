#include "trainer/fsdp/packed_tensor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/nf4.h"
#include "trainer/ops/device_ops.h"
#include "trainer/ops/nf4.h"

namespace muster {
namespace {

class PackedTensor : public testing::TestWithParam<std::tuple<std::int64_t, bool>> {};

TEST_P(PackedTensor, IsReadAsItWasWritten) {
  const auto [count, twice] = GetParam();
  at::manual_seed(5);
  const Nf4Tensor tensor = QuantizeNf4(at::randn({count}), twice);
  const PackedLayout layout = LayOutPacked(count, twice);
  std::vector<std::byte> image(static_cast<std::size_t>(layout.bytes), std::byte{0xff});
  WritePacked(layout, tensor, image.data());
  const std::unique_ptr<DeviceOps> ops = MakeCpuOps();
  at::Tensor want = at::empty({count}), got = at::empty({count});
  ops->Run(op::DequantizeNf4{tensor.source(), want});
  ops->Run(op::DequantizeNf4{
      ReadPacked(layout, image.data(), Nf4NestedCode().data(), tensor.offset), got});
  EXPECT_TRUE(at::equal(got, want));
}

INSTANTIATE_TEST_SUITE_P(Sizes, PackedTensor,
                         testing::Combine(testing::Values(1, 63, 64, 65, 16384, 20000),
                                          testing::Bool()));

TEST(PackedTensor, TakesABitMoreThanFourBitsAnElement) {
  constexpr std::int64_t kCount = std::int64_t{1} << 24;
  EXPECT_EQ(LayOutPacked(kCount, false).bytes, kCount / 2 + 4 * kCount / 64);
  EXPECT_EQ(LayOutPacked(kCount, true).bytes, kCount / 2 + kCount / 64 + 4 * kCount / 16384);
}

}  // namespace
}  // namespace muster
