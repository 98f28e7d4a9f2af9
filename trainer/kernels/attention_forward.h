// Forward half of the algorithm described in attention_flow.h. Internal to attention*.cc.
#pragma once

#include "trainer/kernels/attention_flow.h"

namespace muster::attention {

template <typename Arithmetic>
class Forward {
 public:
  using Element = typename Arithmetic::Element;
  using Real = typename Arithmetic::Real;
  using Packed = typename Arithmetic::Packed;
  using Vector = typename Arithmetic::Vector;

  Forward(const AttentionShape& shape, const AttentionForwardArrays<Element>& arrays, Arena& arena)
      : shape_(shape),
        arrays_(arrays),
        grid_(shape),
        io_{shape},
        keys_(arena.Take<Packed>(grid_.rows * grid_.columns * kBlock)),
        values_(arena.Take<Packed>(grid_.rows * grid_.columns * kBlock)),
        scores_(arena.Take<Real>(kKeyBlocks * kBlock)),
        probabilities_(arena.Take<Packed>(kKeyBlocks * kBlock)) {
    for (QueryBlock& block : strip_) {
      block.query = arena.Take<Packed>(grid_.columns * kBlock);
      block.out = arena.Take<Real>(grid_.columns * kBlock);
    }
  }

  // All query heads of one key head of one batch row.
  void Run(std::int64_t task) {
    const std::int64_t batch = task / shape_.kv_heads;
    const std::int64_t kv_head = task % shape_.kv_heads;
    PackKeys({arrays_.key, shape_, batch, kv_head}, {arrays_.value, shape_, batch, kv_head});
    const std::int64_t group = shape_.heads / shape_.kv_heads;
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t row = 0; row < grid_.rows; row += kStrip) RunStrip(batch, head, row);
    }
  }

 private:
  static constexpr int kStrip = 2;      // blocks of queries that share a pass over the keys
  static constexpr int kKeyBlocks = 4;  // blocks of keys between two looks at the maximum
  // Sums are only brought to a larger maximum when it grew by more than this, in powers of two:
  // far from overflow, no precision is lost, and most of the rescaling never happens.
  static constexpr Real kSlack = 8;

  // 32 queries. Statistics are in powers of two: sum is of 2^(score - maximum).
  struct QueryBlock {
    Packed* query;  // Q^T, right factor
    Real* out;      // O^T
    alignas(64) Real maximum[kSide];
    alignas(64) Real sum[kSide];
  };

  void PackKeys(const HeadRows<const Element>& key, const HeadRows<const Element>& value) {
    alignas(64) Packed block[kBlock];
    for (std::int64_t row = 0; row < grid_.rows; ++row) {
      for (std::int64_t column = 0; column < grid_.columns; ++column) {
        const std::int64_t at = (row * grid_.columns + column) * kBlock;
        io_.Read(key, row, column, keys_ + at);
        io_.Read(value, row, column, block);
        Arithmetic::LeftTransposed(block, values_ + at);
      }
    }
  }

  void RunStrip(std::int64_t batch, std::int64_t head, std::int64_t first) {
    const HeadRows<const Element> query(arrays_.query, shape_, batch, head);
    const std::int64_t count = grid_.rows - first < kStrip ? grid_.rows - first : kStrip;
    for (std::int64_t i = 0; i < count; ++i) Begin(query, first + i, strip_[i]);
    for (std::int64_t key = 0; key < first + count; key += kKeyBlocks) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t left = first + i + 1 - key;  // blocks up to the diagonal
        if (left > 0) Attend(strip_[i], key, left);
      }
    }
    for (std::int64_t i = 0; i < count; ++i) Finish(strip_[i], batch, head, first + i);
  }

  void Begin(const HeadRows<const Element>& query, std::int64_t row, QueryBlock& q) {
    alignas(64) Packed block[kBlock];
    for (std::int64_t column = 0; column < grid_.columns; ++column) {
      io_.Read(query, row, column, block);
      Arithmetic::RightTransposed(block, q.query + column * kBlock);
    }
    Clear(q.out, grid_.columns * kBlock);
    Clear(q.sum, kSide);
    for (int i = 0; i < kSide; ++i) q.maximum[i] = -static_cast<Real>(__builtin_inf());
  }

  // Takes the keys of up to kKeyBlocks blocks into q; `left` blocks are on or below the diagonal.
  void Attend(QueryBlock& q, std::int64_t key, std::int64_t left) {
    const int count = left < kKeyBlocks ? static_cast<int>(left) : kKeyBlocks;
    for (int i = 0; i < count; ++i) {
      Arithmetic::Multiply(false, scores_ + i * kBlock, keys_ + (key + i) * grid_.columns * kBlock,
                           kBlock, q.query, kBlock, static_cast<int>(grid_.columns));
    }
    if (left <= kKeyBlocks) MaskDiagonal<Arithmetic>(scores_ + (left - 1) * kBlock);
    RaiseMaximum(q, count);
    Exponentials(q, count);
    for (std::int64_t column = 0; column < grid_.columns; ++column) {
      Arithmetic::Multiply(true, q.out + column * kBlock,
                           values_ + (key * grid_.columns + column) * kBlock,
                           grid_.columns * kBlock, probabilities_, kBlock, count);
    }
  }

  void RaiseMaximum(QueryBlock& q, int count) {
    Vector largest[Arithmetic::kVectors];
    for (int v = 0; v < Arithmetic::kVectors; ++v) {
      largest[v] = Arithmetic::LoadVector(scores_ + v * Arithmetic::kLanes);
    }
    for (int row = 1; row < count * kSide; ++row) {
      for (int v = 0; v < Arithmetic::kVectors; ++v) {
        largest[v] = Arithmetic::Max(
            largest[v], Arithmetic::LoadVector(scores_ + row * kSide + v * Arithmetic::kLanes));
      }
    }
    const Real scale = static_cast<Real>(shape_.scale * kLog2e);
    alignas(64) Real raised[kSide];
    bool grew = false;
    for (int v = 0; v < Arithmetic::kVectors; ++v) {
      Arithmetic::StoreVector(raised + v * Arithmetic::kLanes, largest[v] * scale);
    }
    for (int i = 0; i < kSide; ++i) grew |= raised[i] > q.maximum[i] + kSlack;
    if (grew) Rescale(q, raised);
  }

  void Rescale(QueryBlock& q, const Real* raised) {
    for (int v = 0; v < Arithmetic::kVectors; ++v) {
      const int at = v * Arithmetic::kLanes;
      const Vector before = Arithmetic::LoadVector(q.maximum + at);
      const Vector after = Arithmetic::Max(Arithmetic::LoadVector(raised + at), before);
      const Vector factor = Arithmetic::Exp2(before - after);
      Arithmetic::StoreVector(q.maximum + at, after);
      Arithmetic::StoreVector(q.sum + at, Arithmetic::LoadVector(q.sum + at) * factor);
      for (std::int64_t row = 0; row < grid_.columns * kSide; ++row) {
        Real* out = q.out + row * kSide + at;
        Arithmetic::StoreVector(out, Arithmetic::LoadVector(out) * factor);
      }
    }
  }

  // Scores become probabilities relative to the maximum.
  void Exponentials(QueryBlock& q, int count) {
    const Vector scale = Arithmetic::Broadcast(static_cast<Real>(shape_.scale * kLog2e));
    Vector maximum[Arithmetic::kVectors], sum[Arithmetic::kVectors];
    for (int v = 0; v < Arithmetic::kVectors; ++v) {
      maximum[v] = Arithmetic::LoadVector(q.maximum + v * Arithmetic::kLanes);
      sum[v] = Arithmetic::LoadVector(q.sum + v * Arithmetic::kLanes);
    }
    for (int row = 0; row < count * kSide; row += 2) {
      Vector even[Arithmetic::kVectors], odd[Arithmetic::kVectors];
      for (int v = 0; v < Arithmetic::kVectors; ++v) {
        const Real* score = scores_ + row * kSide + v * Arithmetic::kLanes;
        even[v] = Arithmetic::Exp2(Arithmetic::LoadVector(score) * scale - maximum[v]);
        odd[v] = Arithmetic::Exp2(Arithmetic::LoadVector(score + kSide) * scale - maximum[v]);
        sum[v] += even[v] + odd[v];
      }
      Arithmetic::StoreRight(probabilities_, row, even, odd);
    }
    for (int v = 0; v < Arithmetic::kVectors; ++v) {
      Arithmetic::StoreVector(q.sum + v * Arithmetic::kLanes, sum[v]);
    }
  }

  void Finish(QueryBlock& q, std::int64_t batch, std::int64_t head, std::int64_t row) {
    const int queries = BlockIo<Arithmetic>::Part(shape_.length, row);
    Real* lse = arrays_.lse + (batch * shape_.heads + head) * shape_.length + row * kSide;
    alignas(64) Real inverse[kSide];
    for (int i = 0; i < kSide; ++i) inverse[i] = Real{1} / q.sum[i];
    for (int i = 0; i < queries; ++i) {
      lse[i] =
          (q.maximum[i] + static_cast<Real>(__builtin_log2(q.sum[i]))) * static_cast<Real>(kLn2);
    }
    for (std::int64_t r = 0; r < grid_.columns * kSide; ++r) {
      for (int i = 0; i < kSide; ++i) q.out[r * kSide + i] *= inverse[i];
    }
    const HeadRows<Element> out(arrays_.out, shape_, batch, head);
    for (std::int64_t column = 0; column < grid_.columns; ++column) {
      io_.WriteTransposed(q.out + column * kBlock, Real{1}, out, row, column);
    }
  }

  const AttentionShape& shape_;
  const AttentionForwardArrays<Element>& arrays_;
  const Grid grid_;
  const BlockIo<Arithmetic> io_;
  Packed* keys_;           // K, left factor: [rows, columns]
  Packed* values_;         // V^T, left factor: blocks in the same order
  Real* scores_;           // S^T: [kKeyBlocks]
  Packed* probabilities_;  // P^T, right factor: [kKeyBlocks]
  QueryBlock strip_[kStrip];
};

}  // namespace muster::attention
