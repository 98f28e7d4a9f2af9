// The forms in which attention exists, one per instruction set; attention.cc chooses among them.
// Callers use attention.h; this header is for the forms themselves, their tests and benchmarks.
//
//   path       products                         element types                   file
//   kPortable  whatever the compiler targets    all attention_portable.cc kAvx2      fp32, 8 lanes
//   float, BFloat16, Float16        attention_avx2.cc kAvx512    fp32, 16 lanes float, BFloat16,
//   Float16        attention_avx512.cc kBf16Dot   bf16 pairs, 16 lanes             BFloat16
//   attention_bf16_dot.cc kAmx       bf16 tiles                       BFloat16 attention_amx.cc
//
// All are the one algorithm of attention_flow.h over different arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/ops/cpu/attention.h"

namespace muster {

enum class AttentionPath { kPortable, kAvx2, kAvx512, kBf16Dot, kAmx };
inline constexpr AttentionPath kAttentionPaths[] = {AttentionPath::kPortable, AttentionPath::kAvx2,
                                                    AttentionPath::kAvx512, AttentionPath::kBf16Dot,
                                                    AttentionPath::kAmx};

const char* ToString(AttentionPath path);

// One path for one element type. `scratch` is aligned to 64 bytes and as long as the matching
// function says; its contents are of no account before and after.
template <typename Element>
struct AttentionKernels {
  std::size_t (*forward_scratch)(const AttentionShape& shape) = nullptr;
  std::size_t (*backward_scratch)(const AttentionShape& shape) = nullptr;
  void (*forward)(const AttentionShape& shape, const AttentionForwardArrays<Element>& arrays,
                  std::int64_t begin, std::int64_t end, std::byte* scratch) = nullptr;
  void (*backward)(const AttentionShape& shape, const AttentionBackwardArrays<Element>& arrays,
                   std::int64_t begin, std::int64_t end, std::byte* scratch) = nullptr;
};

// The kernels of a path; null where it does not exist for the element type, was not compiled, or
// cannot run on this processor. kPortable always exists.
template <typename Element>
const AttentionKernels<Element>* FindAttention(AttentionPath path);

// What attention.h's functions use.
template <typename Element>
AttentionPath FastestAttention();

template <typename Element>
void AttentionForward(const AttentionKernels<Element>& kernels, const AttentionShape& shape,
                      const AttentionForwardArrays<Element>& arrays, std::int64_t begin,
                      std::int64_t end);
template <typename Element>
void AttentionBackward(const AttentionKernels<Element>& kernels, const AttentionShape& shape,
                       const AttentionBackwardArrays<Element>& arrays, std::int64_t begin,
                       std::int64_t end);

// Where the forms are; the x86 ones exist on x86-64 alone.
extern const AttentionKernels<float> kPortableAttentionFloat;
extern const AttentionKernels<double> kPortableAttentionDouble;
extern const AttentionKernels<BFloat16> kPortableAttentionBFloat16;
extern const AttentionKernels<Float16> kPortableAttentionFloat16;
extern const AttentionKernels<float> kAvx2AttentionFloat;
extern const AttentionKernels<BFloat16> kAvx2AttentionBFloat16;
extern const AttentionKernels<Float16> kAvx2AttentionFloat16;
extern const AttentionKernels<float> kAvx512AttentionFloat;
extern const AttentionKernels<BFloat16> kAvx512AttentionBFloat16;
extern const AttentionKernels<Float16> kAvx512AttentionFloat16;
extern const AttentionKernels<BFloat16> kBf16DotAttention;
extern const AttentionKernels<BFloat16> kAmxAttention;

}  // namespace muster
