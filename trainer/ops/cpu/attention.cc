#include "trainer/ops/cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <type_traits>
#include <vector>

#include "common/base/round_up.h"
#include "trainer/ops/attention.h"
#include "trainer/ops/cpu/attention_paths.h"
#include "trainer/ops/cpu/attention_sinks.h"
#include "trainer/ops/cpu/cpu_features.h"
#include "trainer/ops/cpu/kernel.h"
#include "trainer/ops/documents.h"

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
    bytes = RoundUp(bytes, kAlignment);
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

// `bounds` are the batch's documents, and outlive the result.
AttentionShape ShapeOfAttention(const std::vector<std::int64_t>& bounds,
                                const AttentionHeads& heads) {
  return {.batch = std::ssize(bounds) - 1,
          .length = LongestDocument(bounds),
          .heads = heads.heads,
          .kv_heads = heads.kv_heads,
          .head_dim = heads.head_dim,
          .scale = heads.score_scale(),
          .cap = heads.cap,
          .window = heads.window,
          .bounds = bounds.data()};
}

// Calls f(begin, end) for every task of attention. Whichever thread is free takes the next one, the
// longest first, so that one long document and many short ones keep all threads busy; the bits do
// not depend on who computes a task.
template <typename F>
void OverTasks(const AttentionShape& shape, const F& f) {
  const std::int64_t* bounds = shape.bounds;
  std::vector<std::int64_t> documents(static_cast<std::size_t>(shape.batch));
  std::iota(documents.begin(), documents.end(), 0);
  std::stable_sort(documents.begin(), documents.end(), [bounds](std::int64_t a, std::int64_t b) {
    return bounds[a + 1] - bounds[a] > bounds[b + 1] - bounds[b];
  });
  std::atomic<std::int64_t> next = 0;
  OverRanges(HostThreads(), 1, [&](std::int64_t, std::int64_t) {
    for (std::int64_t i = next++; i < AttentionTasks(shape); i = next++) {
      const std::int64_t document = documents[static_cast<std::size_t>(i / shape.kv_heads)];
      const std::int64_t task = document * shape.kv_heads + i % shape.kv_heads;
      f(task, task + 1);
    }
  });
}

// Query, key and value in a joined array.
template <typename Element>
struct JoinedHeads {
  HeadArray<Element> query, key, value;

  JoinedHeads(Element* joined, const AttentionHeads& h) {
    const std::int64_t stride = h.joined_width();
    query = {joined, stride};
    key = {joined + h.heads * h.head_dim, stride};
    value = {joined + (h.heads + h.kv_heads) * h.head_dim, stride};
  }
};

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

namespace op {

void RunOnCpu(const Attention& a) {
  const std::vector<std::int64_t> bounds = DocumentBounds(a.shape);
  const AttentionShape shape = ShapeOfAttention(bounds, a.heads);
  WithElement(a.qkv.type(), [&]<typename T>(T*) {
    const JoinedHeads<const T> in(a.qkv.data<T>(), a.heads);
    const AttentionForwardArrays<T> arrays{.query = in.query,
                                           .key = in.key,
                                           .value = in.value,
                                           .out = {a.out.data<T>(), a.out.width()},
                                           .lse = a.lse.data<Wide<T>>()};
    OverTasks(shape, [&](auto begin, auto end) { AttentionForward(shape, arrays, begin, end); });
  });
  if (a.sinks.defined()) CountSinks(a, bounds);
}

void RunOnCpu(const AttentionBackward& a) {
  const std::vector<std::int64_t> bounds = DocumentBounds(a.shape);
  const AttentionShape shape = ShapeOfAttention(bounds, a.heads);
  WithElement(a.qkv.type(), [&]<typename T>(T*) {
    const JoinedHeads<const T> in(a.qkv.data<T>(), a.heads);
    const JoinedHeads<T> gradients(a.qkv_gradient.data<T>(), a.heads);
    const AttentionBackwardArrays<T> arrays{
        .query = in.query,
        .key = in.key,
        .value = in.value,
        .out = {a.out.data<T>(), a.out.width()},
        .out_gradient = {a.out_gradient.data<T>(), a.out.width()},
        .lse = a.lse.data<Wide<T>>(),
        .query_gradient = gradients.query,
        .key_gradient = gradients.key,
        .value_gradient = gradients.value};
    OverTasks(shape,
              [&](auto begin, auto end) { muster::AttentionBackward(shape, arrays, begin, end); });
  });
  if (a.sink_gradients.array.defined()) WriteSinkGradients(a, bounds);
}

}  // namespace op

template void CpuKernel<op::Attention>(const void*);
template void CpuKernel<op::AttentionBackward>(const void*);

}  // namespace muster
