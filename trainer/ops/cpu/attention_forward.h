// Forward half of the algorithm described in attention_flow.h. Internal to attention*.cc.
#pragma once

#include <limits>

#include "trainer/ops/cpu/attention_flow.h"

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
        io_{grid_},
        keys_(arena.Take<Packed>(grid_.rows * grid_.columns * kBlock)),
        values_(arena.Take<Packed>(grid_.rows * grid_.columns * kBlock)),
        scores_(arena.Take<Real>(kBlock)) {
    for (QueryBlock& block : strip_) {
      block.probabilities = arena.Take<Packed>(kKeyBlocks * kBlock);
      block.query = arena.Take<Packed>(grid_.columns * kBlock);
      block.out = arena.Take<Real>(grid_.columns * kBlock);
    }
  }

  // All query heads of one key head of one document.
  void Run(std::int64_t task) {
    const std::int64_t kv_head = task % shape_.kv_heads;
    grid_.MoveTo(shape_, task / shape_.kv_heads);
    PackKeys({arrays_.key, grid_, kv_head}, {arrays_.value, grid_, kv_head});
    const std::int64_t group = shape_.heads / shape_.kv_heads;
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t row = 0; row < grid_.rows; row += kStrip) RunStrip(head, row);
    }
  }

 private:
  static constexpr int kStrip = 2;      // blocks of queries that share a pass over the keys
  static constexpr int kKeyBlocks = 4;  // blocks of keys that go into the output at once
  static constexpr int kVectors = Arithmetic::kVectors, kLanes = Arithmetic::kLanes;
  // Sums are only brought to a larger maximum when it grew by more than this, in powers of two:
  // far from overflow, no precision is lost, and most of the rescaling never happens.
  static constexpr Real kSlack = 8;

  // 32 queries. Statistics are in powers of two: sum is of 2^(score - maximum).
  struct QueryBlock {
    Packed* query;          // Q^T, right factor
    Packed* probabilities;  // P^T, right factor: [kKeyBlocks]
    Real* out;              // O^T
    int waiting;            // the first of the current blocks of keys that is not yet in `out`
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

  void RunStrip(std::int64_t head, std::int64_t first) {
    const HeadRows<const Element> query(arrays_.query, grid_, head);
    const std::int64_t count = grid_.rows - first < kStrip ? grid_.rows - first : kStrip;
    for (std::int64_t i = 0; i < count; ++i) Begin(query, first + i, strip_[i]);
    for (std::int64_t key = grid_.FirstKey(first); key < first + count; key += kKeyBlocks) {
      key_ = key;
      Probabilities(first, count);
      for (std::int64_t i = 0; i < count; ++i) AddValues(strip_[i], KeysFor(first + i));
    }
    for (std::int64_t i = 0; i < count; ++i) Finish(strip_[i], head, first + i);
  }

  void Begin(const HeadRows<const Element>& query, std::int64_t row, QueryBlock& q) {
    alignas(64) Packed block[kBlock];
    for (std::int64_t column = 0; column < grid_.columns; ++column) {
      io_.Read(query, row, column, block);
      Arithmetic::RightTransposed(block, q.query + column * kBlock);
    }
    Clear(q.out, grid_.columns * kBlock);
    Clear(q.sum, kSide);
    // Not minus infinity: a query may see nothing of the first block, and then no difference may
    // become NaN.
    for (int i = 0; i < kSide; ++i) q.maximum[i] = std::numeric_limits<Real>::lowest();
  }

  // The first of the current blocks of keys that the block of queries sees.
  int KeysFrom(std::int64_t row) const {
    const std::int64_t first = grid_.FirstKey(row) - key_;
    return first > 0 ? static_cast<int>(first < kKeyBlocks ? first : kKeyBlocks) : 0;
  }
  // How many of the current blocks of keys are not beyond the diagonal.
  int KeysFor(std::int64_t row) const {
    const std::int64_t left = row + 1 - key_;
    return left < kKeyBlocks ? static_cast<int>(left) : kKeyBlocks;
  }

  // P^T of the `count` blocks of queries from `first` on for the current keys.
  void Probabilities(std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) strip_[i].waiting = KeysFrom(first + i);
    for (int key = 0; key < KeysFor(first + count - 1); ++key) {
      for (std::int64_t i = 0; i < count; ++i) {
        if (key < KeysFrom(first + i) || key >= KeysFor(first + i)) continue;
        Arithmetic::Multiply(scores_, keys_ + (key_ + key) * grid_.columns * kBlock,
                             strip_[i].query, static_cast<int>(grid_.columns));
        if (shape_.cap != 0) CapScores<Real>(shape_, scores_, nullptr);
        grid_.template Mask<Arithmetic>(first + i, key_ + key, scores_);
        Exponentials(strip_[i], key);
      }
    }
  }

  // Takes the blocks of keys from q.waiting up to `end` of the current ones into the output.
  void AddValues(QueryBlock& q, int end) {
    if (q.waiting >= end) return;
    for (std::int64_t column = 0; column < grid_.columns; ++column) {
      Arithmetic::MultiplyAdd(
          q.out + column * kBlock, values_ + ((key_ + q.waiting) * grid_.columns + column) * kBlock,
          grid_.columns * kBlock, q.probabilities + q.waiting * kBlock, kBlock, end - q.waiting);
    }
  }

  // Scores become probabilities relative to the maximum, which is raised first where it must be.
  void Exponentials(QueryBlock& q, int key) {
    const Vector scale = Arithmetic::Broadcast(static_cast<Real>(shape_.scale * kLog2e));
    RaiseMaximum(q, key, scale);
    Vector maximum[kVectors], sum[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      maximum[v] = Arithmetic::LoadVector(q.maximum + v * kLanes);
      sum[v] = Arithmetic::LoadVector(q.sum + v * kLanes);
    }
    for (int row = 0; row < kSide; row += 2) {
      Vector even[kVectors], odd[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        const Real* score = scores_ + row * kSide + v * kLanes;
        even[v] = Arithmetic::Exp2(Arithmetic::LoadVector(score) * scale - maximum[v]);
        odd[v] = Arithmetic::Exp2(Arithmetic::LoadVector(score + kSide) * scale - maximum[v]);
        sum[v] += even[v] + odd[v];
      }
      Arithmetic::StoreRight(q.probabilities + key * kBlock, row, even, odd);
    }
    for (int v = 0; v < kVectors; ++v) Arithmetic::StoreVector(q.sum + v * kLanes, sum[v]);
  }

  MUSTER_INLINE void RaiseMaximum(QueryBlock& q, int key, Vector scale) {
    Vector largest[kVectors];
    for (int v = 0; v < kVectors; ++v) largest[v] = Arithmetic::LoadVector(scores_ + v * kLanes);
    for (int row = 1; row < kSide; ++row) {
      for (int v = 0; v < kVectors; ++v) {
        const Vector score = Arithmetic::LoadVector(scores_ + row * kSide + v * kLanes);
        largest[v] = Arithmetic::Max(largest[v], score);
      }
    }
    bool grew = false;
    for (int v = 0; v < kVectors; ++v) {
      largest[v] = largest[v] * scale;
      const Vector maximum = Arithmetic::LoadVector(q.maximum + v * kLanes);
      grew |= Arithmetic::AnyGreater(largest[v], maximum + kSlack);
    }
    if (grew) Rescale(q, key, largest);
  }

  // Brings the sum and the output to the new maximum, after the output has taken in what waits for
  // it under the old one: the blocks of keys before `key`.
  __attribute__((noinline)) void Rescale(QueryBlock& q, int key, const Vector* raised) {
    AddValues(q, key);
    q.waiting = key;
    for (int v = 0; v < kVectors; ++v) {
      const int at = v * kLanes;
      const Vector before = Arithmetic::LoadVector(q.maximum + at);
      // Lane by lane, so that no query's bits depend on its neighbours.
      const Vector after = raised[v] > before + kSlack ? raised[v] : before;
      const Vector factor = Arithmetic::Exp2(before - after);
      Arithmetic::StoreVector(q.maximum + at, after);
      Arithmetic::StoreVector(q.sum + at, Arithmetic::LoadVector(q.sum + at) * factor);
      for (std::int64_t row = 0; row < grid_.columns * kSide; ++row) {
        Real* out = q.out + row * kSide + at;
        Arithmetic::StoreVector(out, Arithmetic::LoadVector(out) * factor);
      }
    }
  }

  void Finish(QueryBlock& q, std::int64_t head, std::int64_t row) {
    const int queries = BlockIo<Arithmetic>::Part(grid_.length, row);
    Real* lse = arrays_.lse + grid_.begin * shape_.heads + head * grid_.length + row * kSide;
    alignas(64) Real inverse[kSide];
    for (int i = 0; i < kSide; ++i) inverse[i] = Real{1} / q.sum[i];
    for (int i = 0; i < queries; ++i) {
      lse[i] =
          (q.maximum[i] + static_cast<Real>(__builtin_log2(q.sum[i]))) * static_cast<Real>(kLn2);
    }
    for (std::int64_t r = 0; r < grid_.columns * kSide; ++r) {
      for (int i = 0; i < kSide; ++i) q.out[r * kSide + i] *= inverse[i];
    }
    const HeadRows<Element> out(arrays_.out, grid_, head);
    for (std::int64_t column = 0; column < grid_.columns; ++column) {
      io_.WriteTransposed(q.out + column * kBlock, Real{1}, out, row, column);
    }
  }

  const AttentionShape& shape_;
  const AttentionForwardArrays<Element>& arrays_;
  Grid grid_;
  const BlockIo<Arithmetic> io_;
  Packed* keys_;          // K, left factor: [rows, columns]
  Packed* values_;        // V^T, left factor: blocks in the same order
  Real* scores_;          // S^T: one block
  std::int64_t key_ = 0;  // the first of the current blocks of keys
  QueryBlock strip_[kStrip];
};

}  // namespace muster::attention
