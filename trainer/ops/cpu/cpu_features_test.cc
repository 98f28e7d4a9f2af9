#include "trainer/ops/cpu/cpu_features.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

constexpr CpuFeatures kAll = {.avx2 = true,
                              .avx512 = true,
                              .avx512_bf16 = true,
                              .avx512_fp16 = true,
                              .amx_bf16 = true,
                              .fast_bf16_dot = true};

TEST(CpuFeatures, NoLimitLeavesEverything) {
  for (const char* isa : {"", "DEFAULT", "AVX512_CORE_AMX", "AVX10_1_512_AMX"}) {
    const CpuFeatures cpu = LimitedTo(kAll, isa);
    EXPECT_TRUE(cpu.amx_bf16 && cpu.avx512_fp16 && cpu.avx512_bf16 && cpu.avx512 && cpu.avx2)
        << isa;
  }
}

TEST(CpuFeatures, AnOlderSetTakesTheNewerInstructionsAway) {
  const CpuFeatures bf16 = LimitedTo(kAll, "AVX512_CORE_BF16");
  EXPECT_TRUE(!bf16.amx_bf16 && bf16.avx512_bf16 && bf16.fast_bf16_dot && bf16.avx512);
  EXPECT_FALSE(bf16.avx512_fp16);
  const CpuFeatures fp16 = LimitedTo(kAll, "AVX512_CORE_FP16");
  EXPECT_TRUE(!fp16.amx_bf16 && fp16.avx512_fp16 && fp16.avx512_bf16);
  const CpuFeatures avx512 = LimitedTo(kAll, "AVX512_CORE_VNNI");
  EXPECT_TRUE(!avx512.avx512_bf16 && !avx512.fast_bf16_dot && avx512.avx512 && avx512.avx2);
  const CpuFeatures avx2 = LimitedTo(kAll, "AVX2_VNNI");
  EXPECT_TRUE(!avx2.avx512 && avx2.avx2);
  EXPECT_FALSE(LimitedTo(kAll, "SSE41").avx2);
}

TEST(CpuFeatures, ALimitAddsNothing) {
  EXPECT_FALSE(LimitedTo({}, "AVX512_CORE_AMX").avx2);
  EXPECT_FALSE(LimitedTo({.avx2 = true}, "AVX512_CORE_BF16").avx512);
}

}  // namespace
}  // namespace muster
