// Products of groups of rows with a low-rank factor of each group: what adapters on experts are
// made of.
//
// The rows of group g are begins[g] .. begins[g + 1] - 1 of all. A factor of `rank` rows and
// `width` columns is small, and so is the product of one group: calls of a library for each cost
// more than they compute. Here one call goes over all groups. A range of rows, or of columns where
// rows are summed up, is a thread's; each sum is in one order, so bits do not depend on the number
// of threads. Sums are in the wide type and rounded once.
//
// Pure loops over the caller's memory, on the threads of the host (host_threads.h); the trainer's
// thread. No Torch.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/core/element_type.h"

namespace muster {

struct GroupedRows {
  ElementType type = ElementType::kFloat32;  // of all arrays: fp64, fp32, bf16 or fp16
  std::span<const std::int64_t> begins;      // of each group, and the end of the last
  std::int64_t rank = 0;
  std::int64_t width = 0;
  double scale = 1;  // of each product
};

// Elements from a group's factor to the next one's, from a row of it to the next, and from a
// column.
struct FactorLayout {
  std::int64_t group = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

// hidden [rows, rank] = scale * x factor^T, of x [rows, width].
void GroupedHidden(const GroupedRows& rows, const void* x, const void* factors,
                   const FactorLayout& layout, void* hidden);

// y [rows, width] += scale * hidden factor
void AddGroupedOutput(const GroupedRows& rows, const void* hidden, const void* factors,
                      const FactorLayout& layout, void* y);

// The gradients of the factors: scale * hidden^T x of each group, zero of one without rows. They
// are of the rows' type or of its wide one, and written or added to what is there.
struct FactorGradients {
  void* to = nullptr;
  FactorLayout layout;
  ElementType type = ElementType::kFloat32;
  bool add = false;
};
void GroupedFactorGradients(const GroupedRows& rows, const void* hidden, const void* x,
                            const FactorGradients& gradients);

}  // namespace muster
