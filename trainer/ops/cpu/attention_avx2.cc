// Attention in fp32 for AVX2 with FMA. Compiled for that instruction set; only reached through the
// run-time choice in attention.cc.
#include "trainer/ops/cpu/attention_kernels.h"

namespace muster {
namespace {

struct Avx2 {};
template <typename Element>
using Arithmetic = attention::VectorArithmetic<Element, 8, Avx2>;

}  // namespace

constexpr AttentionKernels<float> kAvx2AttentionFloat = attention::MakeKernels<Arithmetic<float>>();
constexpr AttentionKernels<BFloat16> kAvx2AttentionBFloat16 =
    attention::MakeKernels<Arithmetic<BFloat16>>();
constexpr AttentionKernels<Float16> kAvx2AttentionFloat16 =
    attention::MakeKernels<Arithmetic<Float16>>();

}  // namespace muster
