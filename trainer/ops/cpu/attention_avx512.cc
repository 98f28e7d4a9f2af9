// Attention in fp32 for AVX-512. Compiled for that instruction set; only reached through the
// run-time choice in attention.cc.
#include "trainer/ops/cpu/attention_avx512.h"

#include "trainer/ops/cpu/attention_kernels.h"

namespace muster {
namespace {

struct Avx512 {};
template <typename Element>
using Arithmetic = attention::Avx512Arithmetic<Element, Avx512>;

}  // namespace

constexpr AttentionKernels<float> kAvx512AttentionFloat =
    attention::MakeKernels<Arithmetic<float>>();
constexpr AttentionKernels<BFloat16> kAvx512AttentionBFloat16 =
    attention::MakeKernels<Arithmetic<BFloat16>>();
constexpr AttentionKernels<Float16> kAvx512AttentionFloat16 =
    attention::MakeKernels<Arithmetic<Float16>>();

}  // namespace muster
