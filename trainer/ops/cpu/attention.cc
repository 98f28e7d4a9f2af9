#include "trainer/ops/cpu/attention.h"

#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "trainer/ops/cpu/attention_paths.h"
#include "trainer/ops/cpu/cpu_features.h"

namespace muster {
namespace {

constexpr std::size_t kAlignment = 64;

struct FreeAligned {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};

// This thread's working memory, kept between calls because fresh pages would cost a tenth of a
// kernel's time. Its size is linear in length times head dimension of the largest call so far.
std::byte* Scratch(std::size_t bytes) {
  thread_local std::unique_ptr<std::byte, FreeAligned> memory;
  thread_local std::size_t held = 0;
  if (bytes > held) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    memory.reset();
    held = 0;
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes)));
    if (memory == nullptr) throw std::bad_alloc();
    held = bytes;
  }
  return memory.get();
}

template <typename Element>
const AttentionKernels<Element>& Fastest() {
  static const AttentionKernels<Element>& kernels =
      *FindAttention<Element>(FastestAttention<Element>());
  return kernels;
}

}  // namespace

const char* ToString(AttentionPath path) {
  switch (path) {
    case AttentionPath::kPortable: return "portable";
    case AttentionPath::kAvx2: return "avx2";
    case AttentionPath::kAvx512: return "avx512";
    case AttentionPath::kBf16Dot: return "avx512_bf16";
    case AttentionPath::kAmx: return "amx";
  }
  return "";
}

template <typename Element>
const AttentionKernels<Element>* FindAttention(AttentionPath path) {
  constexpr bool kFloat = std::is_same_v<Element, float>;
  constexpr bool kBFloat16 = std::is_same_v<Element, BFloat16>;
  constexpr bool kFloat16 = std::is_same_v<Element, Float16>;
  if (path == AttentionPath::kPortable) {
    if constexpr (kFloat) return &kPortableAttentionFloat;
    if constexpr (kBFloat16) return &kPortableAttentionBFloat16;
    if constexpr (kFloat16) return &kPortableAttentionFloat16;
    if constexpr (std::is_same_v<Element, double>) return &kPortableAttentionDouble;
  }
#if defined(__x86_64__)
  const CpuFeatures& cpu = ThisCpu();
  if (path == AttentionPath::kAvx2 && cpu.avx2) {
    if constexpr (kFloat) return &kAvx2AttentionFloat;
    if constexpr (kBFloat16) return &kAvx2AttentionBFloat16;
    if constexpr (kFloat16) return &kAvx2AttentionFloat16;
  }
  if (path == AttentionPath::kAvx512 && cpu.avx512) {
    if constexpr (kFloat) return &kAvx512AttentionFloat;
    if constexpr (kBFloat16) return &kAvx512AttentionBFloat16;
    if constexpr (kFloat16) return &kAvx512AttentionFloat16;
  }
  if constexpr (kBFloat16) {
    if (path == AttentionPath::kBf16Dot && cpu.avx512_bf16) return &kBf16DotAttention;
    if (path == AttentionPath::kAmx && cpu.amx_bf16) return &kAmxAttention;
  }
#endif
  return nullptr;
}

template <typename Element>
AttentionPath FastestAttention() {
  const auto exists = [](AttentionPath path) { return FindAttention<Element>(path) != nullptr; };
  if (exists(AttentionPath::kAmx)) return AttentionPath::kAmx;
  if (exists(AttentionPath::kBf16Dot) && ThisCpu().fast_bf16_dot) return AttentionPath::kBf16Dot;
  if (exists(AttentionPath::kAvx512)) return AttentionPath::kAvx512;
  if (exists(AttentionPath::kAvx2)) return AttentionPath::kAvx2;
  return AttentionPath::kPortable;
}

template <typename Element>
void AttentionForward(const AttentionKernels<Element>& kernels, const AttentionShape& shape,
                      const AttentionForwardArrays<Element>& arrays, std::int64_t begin,
                      std::int64_t end) {
  kernels.forward(shape, arrays, begin, end, Scratch(kernels.forward_scratch(shape)));
}

template <typename Element>
void AttentionBackward(const AttentionKernels<Element>& kernels, const AttentionShape& shape,
                       const AttentionBackwardArrays<Element>& arrays, std::int64_t begin,
                       std::int64_t end) {
  kernels.backward(shape, arrays, begin, end, Scratch(kernels.backward_scratch(shape)));
}

template <typename Element>
void AttentionForward(const AttentionShape& shape, const AttentionForwardArrays<Element>& arrays,
                      std::int64_t begin, std::int64_t end) {
  AttentionForward(Fastest<Element>(), shape, arrays, begin, end);
}

template <typename Element>
void AttentionBackward(const AttentionShape& shape, const AttentionBackwardArrays<Element>& arrays,
                       std::int64_t begin, std::int64_t end) {
  AttentionBackward(Fastest<Element>(), shape, arrays, begin, end);
}

#define MUSTER_INSTANTIATE_ATTENTION(Element)                                                     \
  template const AttentionKernels<Element>* FindAttention(AttentionPath);                         \
  template AttentionPath FastestAttention<Element>();                                             \
  template void AttentionForward(const AttentionKernels<Element>&, const AttentionShape&,         \
                                 const AttentionForwardArrays<Element>&, std::int64_t,            \
                                 std::int64_t);                                                   \
  template void AttentionBackward(const AttentionKernels<Element>&, const AttentionShape&,        \
                                  const AttentionBackwardArrays<Element>&, std::int64_t,          \
                                  std::int64_t);                                                  \
  template void AttentionForward(const AttentionShape&, const AttentionForwardArrays<Element>&,   \
                                 std::int64_t, std::int64_t);                                     \
  template void AttentionBackward(const AttentionShape&, const AttentionBackwardArrays<Element>&, \
                                  std::int64_t, std::int64_t);

MUSTER_INSTANTIATE_ATTENTION(float)
MUSTER_INSTANTIATE_ATTENTION(double)
MUSTER_INSTANTIATE_ATTENTION(BFloat16)
MUSTER_INSTANTIATE_ATTENTION(Float16)

}  // namespace muster
