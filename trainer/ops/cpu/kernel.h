// What the sources of the CPU's kernels share.
//
// A kernel is a function RunOnCpu(const op::OPERATOR&) in namespace muster::op, over the memory of
// checked arrays, and an instantiation of CpuKernel for the operator at the end of its source. Rows
// and elements are independent, so that any cut into ranges for the threads gives the same bits.
// The trainer's thread; no Torch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/check.h"
#include "trainer/core/element.h"
#include "trainer/core/vector_clones.h"
#include "trainer/ops/array.h"
#include "trainer/ops/host_threads.h"

namespace muster {

// Elements of work that are worth another thread.
inline constexpr std::int64_t kGrain = std::int64_t{1} << 15;

// Calls f with a null pointer of the kernels' element type.
template <typename F>
MUSTER_INLINE void WithElement(ElementType type, const F& f) {
  switch (type) {
    case ElementType::kFloat64: return f(static_cast<double*>(nullptr));
    case ElementType::kFloat32: return f(static_cast<float*>(nullptr));
    case ElementType::kBFloat16: return f(static_cast<BFloat16*>(nullptr));
    case ElementType::kFloat16: return f(static_cast<Float16*>(nullptr));
    default: MUSTER_CHECK(false, "elements that no kernel computes with");
  }
}

// Cuts [0, count) into ranges for the threads, each worth kGrain elements.
template <typename F>
void OverRows(std::int64_t count, std::int64_t width, const F& f) {
  OverRanges(count, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, width)), f);
}

// An entry of CpuOps' table. Each kernel's source instantiates its own.
template <typename Op>
void CpuKernel(const void* arguments) {
  RunOnCpu(*static_cast<const Op*>(arguments));
}

}  // namespace muster
