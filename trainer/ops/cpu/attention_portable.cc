// Attention for whatever the compiler targets, in vectors of 16 bytes; the only form for double.
#include "trainer/ops/cpu/attention_kernels.h"

namespace muster {
namespace {

struct Portable {};
template <typename Element>
using Arithmetic =
    attention::VectorArithmetic<Element, 16 / static_cast<int>(sizeof(Wide<Element>)), Portable>;

}  // namespace

constexpr AttentionKernels<float> kPortableAttentionFloat =
    attention::MakeKernels<Arithmetic<float>>();
constexpr AttentionKernels<double> kPortableAttentionDouble =
    attention::MakeKernels<Arithmetic<double>>();
constexpr AttentionKernels<BFloat16> kPortableAttentionBFloat16 =
    attention::MakeKernels<Arithmetic<BFloat16>>();
constexpr AttentionKernels<Float16> kPortableAttentionFloat16 =
    attention::MakeKernels<Arithmetic<Float16>>();

}  // namespace muster
