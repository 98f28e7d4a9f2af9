// The queries that backward works on at a time, in all the forms that its products take.
// Internal to attention*.cc.
#pragma once

#include "trainer/ops/cpu/attention_flow.h"

namespace muster::attention {

inline constexpr int kQueryBlocks = 4;

// Up to kQueryBlocks blocks of positions of one query head; matrices are [kQueryBlocks, columns].
template <typename Arithmetic>
class QueryPanel {
 public:
  using Element = typename Arithmetic::Element;
  using Real = typename Arithmetic::Real;
  using Packed = typename Arithmetic::Packed;

  struct RightFactors {
    Packed* plain;
    Packed* transposed;
  };

  // All arguments outlive the panel; `grid` moves from document to document.
  QueryPanel(const AttentionShape& shape, const Grid& grid,
             const AttentionBackwardArrays<Element>& arrays, Arena& arena)
      : shape_(shape), arrays_(arrays), grid_(grid), io_{grid} {
    const std::int64_t size = kQueryBlocks * grid_.columns * kBlock;
    query = {arena.Take<Packed>(size), arena.Take<Packed>(size)};
    out_gradient = {arena.Take<Packed>(size), arena.Take<Packed>(size)};
    gradient = arena.Take<Real>(size);
  }

  // Reads `count` blocks from block `first` on; their gradient starts from zero.
  void Pack(std::int64_t head, std::int64_t first, int count) {
    const HeadRows<const Element> queries(arrays_.query, grid_, head);
    const HeadRows<const Element> gradients(arrays_.out_gradient, grid_, head);
    for (int q = 0; q < count; ++q) {
      PackRow(queries, first + q, q, query);
      PackRow(gradients, first + q, q, out_gradient);
      PackStatistics(head, first + q, q);
    }
    Clear(gradient, count * grid_.columns * kBlock);
  }

  void WriteGradient(std::int64_t head, std::int64_t first, int count) const {
    const HeadRows<Element> to(arrays_.query_gradient, grid_, head);
    for (int q = 0; q < count; ++q) {
      for (std::int64_t column = 0; column < grid_.columns; ++column) {
        io_.WriteTransposed(gradient + (q * grid_.columns + column) * kBlock,
                            static_cast<Real>(shape_.scale), to, first + q, column);
      }
    }
  }

  RightFactors query;
  RightFactors out_gradient;
  Real* gradient;  // of the transposed queries
  // Per query: binary logarithm of the sum of its exponentials, and D.
  alignas(64) Real log2_sum[kQueryBlocks * kSide];
  alignas(64) Real row_sum[kQueryBlocks * kSide];

 private:
  void PackRow(const HeadRows<const Element>& from, std::int64_t row, int q,
               const RightFactors& to) {
    alignas(64) Packed block[kBlock];
    for (std::int64_t column = 0; column < grid_.columns; ++column) {
      const std::int64_t at = (q * grid_.columns + column) * kBlock;
      io_.Read(from, row, column, block);
      Arithmetic::Right(block, to.plain + at);
      Arithmetic::RightTransposed(block, to.transposed + at);
    }
  }

  void PackStatistics(std::int64_t head, std::int64_t row, int q) {
    const HeadRows<const Element> out(arrays_.out, grid_, head);
    const HeadRows<const Element> gradients(arrays_.out_gradient, grid_, head);
    const Real* lse = arrays_.lse + grid_.begin * shape_.heads + head * grid_.length;
    for (int i = 0; i < kSide; ++i) {
      const std::int64_t position = row * kSide + i;
      const bool real = position < grid_.length;
      log2_sum[q * kSide + i] = real ? lse[position] * static_cast<Real>(kLog2e) : Real{0};
      row_sum[q * kSide + i] =
          real ? Dot(out.data + position * out.stride, gradients.data + position * gradients.stride)
               : Real{0};
    }
  }

  MUSTER_INLINE Real Dot(const Element* a, const Element* b) const {
    constexpr int kLanes = Arithmetic::kLanes;
    typename Arithmetic::Vector lanes = {};
    std::int64_t i = 0;
    for (; i + kLanes <= shape_.head_dim; i += kLanes) {
      lanes += Arithmetic::LoadElements(a + i) * Arithmetic::LoadElements(b + i);
    }
    Real sum = Arithmetic::Sum(lanes);
    for (; i < shape_.head_dim; ++i) sum += Load(a[i]) * Load(b[i]);
    return sum;
  }

  const AttentionShape& shape_;
  const AttentionBackwardArrays<Element>& arrays_;
  const Grid& grid_;
  const BlockIo<Arithmetic> io_;
};

}  // namespace muster::attention
