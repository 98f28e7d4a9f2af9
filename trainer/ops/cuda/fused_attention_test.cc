// The choice between attention kernels; the kernels themselves need a GPU (device_ops_test.cc).
#include "trainer/ops/cuda/fused_attention.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

AttentionHeads Width(std::int64_t head_dim) {
  return {.heads = 8, .kv_heads = 2, .head_dim = head_dim};
}

const BatchShape kRows{.rows = 2, .length = 16};

TEST(AttentionCandidates, AreCudnnThenFlashUnlessResultsMustRepeat) {
  EXPECT_THAT(AttentionCandidates(/*deterministic=*/false),
              ElementsAre(AttentionBackend::kCudnn, AttentionBackend::kFlash,
                          AttentionBackend::kPackedFlash));
  EXPECT_THAT(AttentionCandidates(true),
              ElementsAre(AttentionBackend::kFlash, AttentionBackend::kPackedFlash));
}

TEST(AttentionFits, HalfTypesAndOrdinaryWidthsOnly) {
  for (const AttentionBackend backend : {AttentionBackend::kCudnn, AttentionBackend::kFlash}) {
    EXPECT_TRUE(AttentionFits(backend, at::kBFloat16, kRows, Width(128)));
    EXPECT_TRUE(AttentionFits(backend, at::kHalf, kRows, Width(64)));
    EXPECT_FALSE(AttentionFits(backend, at::kFloat, kRows, Width(64)));
    EXPECT_FALSE(AttentionFits(backend, at::kDouble, kRows, Width(64)));
    EXPECT_FALSE(AttentionFits(backend, at::kBFloat16, kRows, Width(60)));
    EXPECT_FALSE(AttentionFits(backend, at::kBFloat16, kRows, Width(264)));
  }
  EXPECT_FALSE(AttentionFits(AttentionBackend::kCudnn, at::kBFloat16, kRows, Width(256)));
  EXPECT_TRUE(AttentionFits(AttentionBackend::kFlash, at::kBFloat16, kRows, Width(256)));
}

TEST(AttentionFits, DocumentsAndWindowsOnlyWhereFlashAttentionTakesThem) {
  const BatchShape packed{.rows = 1, .length = 9, .document_begins = {0, 4}};
  AttentionHeads narrow = Width(64);
  narrow.window = 3;
  for (const AttentionBackend backend : {AttentionBackend::kCudnn, AttentionBackend::kFlash}) {
    EXPECT_FALSE(AttentionFits(backend, at::kBFloat16, packed, Width(64)));
    EXPECT_FALSE(AttentionFits(backend, at::kBFloat16, kRows, narrow));
  }
  EXPECT_TRUE(AttentionFits(AttentionBackend::kPackedFlash, at::kBFloat16, packed, Width(64)));
  EXPECT_TRUE(AttentionFits(AttentionBackend::kPackedFlash, at::kBFloat16, kRows, narrow));
  EXPECT_FALSE(AttentionFits(AttentionBackend::kPackedFlash, at::kFloat, packed, narrow));
  EXPECT_FALSE(AttentionFits(AttentionBackend::kPackedFlash, at::kBFloat16, kRows, Width(64)));
}

// The CPU has neither kernel: what a GPU without them does.
TEST(FusedAttention, WithoutAKernelThatWorksLeavesItToMathAttentionAndSaysWhy) {
  const FusedAttention attention(at::kCPU, at::kBFloat16);
  EXPECT_THAT(attention.description(),
              AllOf(StartsWith("plain ("), HasSubstr("cuDNN: "), HasSubstr("; flash: ")));
  const BatchShape shape{.rows = 1, .length = 4};
  const AttentionHeads heads = Width(8);
  const at::Tensor qkv = at::zeros({4, heads.joined_width()}, at::kBFloat16);
  at::Tensor out = at::full({4, 64}, 7, at::kBFloat16), lse = at::zeros({1, 8, 4});
  EXPECT_FALSE(attention.Forward(qkv, shape, heads, out, lse));
  EXPECT_EQ(out.min().item<float>(), 7);
  at::Tensor gradient = at::empty_like(qkv);
  EXPECT_FALSE(attention.Backward(qkv, out, lse, out, shape, heads, gradient));
}

}  // namespace
}  // namespace muster
