// Backward half of the algorithm described in attention_flow.h. Internal to attention*.cc.
#pragma once

#include "trainer/ops/cpu/attention_flow.h"
#include "trainer/ops/cpu/attention_query_panel.h"

namespace muster::attention {

template <typename Arithmetic>
class Backward {
 public:
  using Element = typename Arithmetic::Element;
  using Real = typename Arithmetic::Real;
  using Packed = typename Arithmetic::Packed;
  using Vector = typename Arithmetic::Vector;

  Backward(const AttentionShape& shape, const AttentionBackwardArrays<Element>& arrays,
           Arena& arena)
      : shape_(shape),
        arrays_(arrays),
        grid_(shape),
        io_{grid_},
        queries_(shape, grid_, arrays, arena) {
    const std::int64_t head = grid_.rows * grid_.columns * kBlock;
    keys_ = arena.Take<Packed>(head);
    keys_transposed_ = arena.Take<Packed>(head);
    values_ = arena.Take<Packed>(head);
    key_gradient_ = arena.Take<Real>(head);
    value_gradient_ = arena.Take<Real>(head);
    const std::int64_t square = kKeyBlocks * kQueryBlocks * kBlock;
    probabilities_ = arena.Take<Packed>(square);
    score_gradient_ = arena.Take<Packed>(square);
    score_gradient_right_ = Arithmetic::kPaired ? arena.Take<Packed>(square) : score_gradient_;
    scores_ = arena.Take<Real>(kBlock);
    probability_gradient_ = arena.Take<Real>(kBlock);
    slopes_ = arena.Take<Real>(kBlock);
  }

  // All query heads of one key head of one document.
  void Run(std::int64_t task) {
    const std::int64_t kv_head = task % shape_.kv_heads;
    grid_.MoveTo(shape_, task / shape_.kv_heads);
    PackKeys({arrays_.key, grid_, kv_head}, {arrays_.value, grid_, kv_head});
    Clear(key_gradient_, grid_.rows * grid_.columns * kBlock);
    Clear(value_gradient_, grid_.rows * grid_.columns * kBlock);
    const std::int64_t group = shape_.heads / shape_.kv_heads;
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t row = 0; row < grid_.rows; row += kQueryBlocks) RunQueries(head, row);
    }
    WriteKeys({arrays_.key_gradient, grid_, kv_head}, {arrays_.value_gradient, grid_, kv_head});
  }

 private:
  static constexpr int kKeyBlocks = 4;

  void PackKeys(const HeadRows<const Element>& key, const HeadRows<const Element>& value) {
    for (std::int64_t row = 0; row < grid_.rows; ++row) {
      for (std::int64_t column = 0; column < grid_.columns; ++column) {
        const std::int64_t at = (row * grid_.columns + column) * kBlock;
        io_.Read(key, row, column, keys_ + at);
        Arithmetic::LeftTransposed(keys_ + at, keys_transposed_ + at);
        io_.Read(value, row, column, values_ + at);
      }
    }
  }

  void RunQueries(std::int64_t head, std::int64_t first) {
    const std::int64_t left = grid_.rows - first;
    const int queries = left < kQueryBlocks ? static_cast<int>(left) : kQueryBlocks;
    queries_.Pack(head, first, queries);
    const std::int64_t oldest = grid_.FirstKey(first);
    for (std::int64_t key = oldest; key < first + queries; key += kKeyBlocks) {
      const std::int64_t below = first + queries - key;
      const int keys = below < kKeyBlocks ? static_cast<int>(below) : kKeyBlocks;
      ScoreGradients(first, queries, key, keys);
      AddKeyGradient(value_gradient_, probabilities_, queries_.out_gradient.plain, first, queries,
                     key, keys);
      AddKeyGradient(key_gradient_, score_gradient_, queries_.query.plain, first, queries, key,
                     keys);
      AddQueryGradients(first, queries, key, keys);
    }
    queries_.WriteGradient(head, first, queries);
  }

  static constexpr std::int64_t Square(int key, int query) {
    return (key * kQueryBlocks + query) * kBlock;
  }

  // P^T and dS^T of all blocks that are seen. Two blocks of queries at a time stay in
  // the first-level cache while the keys pass by.
  void ScoreGradients(std::int64_t first, int queries, std::int64_t key, int keys) {
    const int columns = static_cast<int>(grid_.columns);
    for (int pair = 0; pair < queries; pair += 2) {
      for (int k = 0; k < keys; ++k) {
        const std::int64_t row = (key + k) * grid_.columns * kBlock;
        for (int q = pair; q < pair + 2 && q < queries; ++q) {
          if (!grid_.Sees(first + q, key + k)) continue;
          const std::int64_t column = q * grid_.columns * kBlock;
          Arithmetic::Multiply(scores_, keys_ + row, queries_.query.transposed + column, columns);
          Arithmetic::Multiply(probability_gradient_, values_ + row,
                               queries_.out_gradient.transposed + column, columns);
          if (shape_.cap != 0) CapScores<Real>(shape_, scores_, slopes_);
          grid_.template Mask<Arithmetic>(first + q, key + k, scores_);
          shape_.cap != 0 ? Exponentials<true>(k, q) : Exponentials<false>(k, q);
        }
      }
    }
  }

  template <bool kCapped>
  void Exponentials(int key, int query) {
    constexpr int kVectors = Arithmetic::kVectors, kLanes = Arithmetic::kLanes;
    const Vector scale = Arithmetic::Broadcast(static_cast<Real>(shape_.scale * kLog2e));
    const std::int64_t at = Square(key, query);
    Vector log2_sum[kVectors], row_sum[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      log2_sum[v] = Arithmetic::LoadVector(queries_.log2_sum + query * kSide + v * kLanes);
      row_sum[v] = Arithmetic::LoadVector(queries_.row_sum + query * kSide + v * kLanes);
    }
    for (int row = 0; row < kSide; row += 2) {
      Vector p[2][kVectors], ds[2][kVectors];
      for (int r = 0; r < 2; ++r) {
        for (int v = 0; v < kVectors; ++v) {
          const int offset = (row + r) * kSide + v * kLanes;
          const Vector score = Arithmetic::LoadVector(scores_ + offset);
          const Vector dp = Arithmetic::LoadVector(probability_gradient_ + offset);
          p[r][v] = Arithmetic::Exp2(score * scale - log2_sum[v]);
          ds[r][v] = p[r][v] * (dp - row_sum[v]);
          if constexpr (kCapped) ds[r][v] *= Arithmetic::LoadVector(slopes_ + offset);
        }
      }
      Arithmetic::StoreLeft(probabilities_ + at, row, p[0], p[1]);
      Arithmetic::StoreLeft(score_gradient_ + at, row, ds[0], ds[1]);
      if constexpr (Arithmetic::kPaired) {
        Arithmetic::StoreRight(score_gradient_right_ + at, row, ds[0], ds[1]);
      }
    }
  }

  // gradient += factor right, for the rows of the current keys. One matrix at a time, so that the
  // right factor stays in the first-level cache while the keys pass by.
  void AddKeyGradient(Real* gradient, const Packed* factor, const Packed* right, std::int64_t first,
                      int queries, std::int64_t key, int keys) {
    for (int k = 0; k < keys; ++k) {
      const std::int64_t start = key + k - first, end = grid_.QueriesEnd(key + k) - first;
      const int q = start > 0 ? static_cast<int>(start) : 0;
      const int count = (end < queries ? static_cast<int>(end) : queries) - q;
      for (std::int64_t column = 0; count > 0 && column < grid_.columns; ++column) {
        Arithmetic::MultiplyAdd(
            gradient + ((key + k) * grid_.columns + column) * kBlock, factor + Square(k, q), kBlock,
            right + (q * grid_.columns + column) * kBlock, grid_.columns * kBlock, count);
      }
    }
  }

  void AddQueryGradients(std::int64_t first, int queries, std::int64_t key, int keys) {
    for (int q = 0; q < queries; ++q) {
      const std::int64_t below = first + q + 1 - key, oldest = grid_.FirstKey(first + q) - key;
      const int k = oldest > 0 ? static_cast<int>(oldest) : 0;
      const int count = (below < keys ? static_cast<int>(below) : keys) - k;
      for (std::int64_t column = 0; count > 0 && column < grid_.columns; ++column) {
        Arithmetic::MultiplyAdd(queries_.gradient + (q * grid_.columns + column) * kBlock,
                                keys_transposed_ + ((key + k) * grid_.columns + column) * kBlock,
                                grid_.columns * kBlock, score_gradient_right_ + Square(k, q),
                                kQueryBlocks * kBlock, count);
      }
    }
  }

  void WriteKeys(const HeadRows<Element>& key, const HeadRows<Element>& value) {
    for (std::int64_t row = 0; row < grid_.rows; ++row) {
      for (std::int64_t column = 0; column < grid_.columns; ++column) {
        const std::int64_t at = (row * grid_.columns + column) * kBlock;
        io_.Write(key_gradient_ + at, static_cast<Real>(shape_.scale), key, row, column);
        io_.Write(value_gradient_ + at, Real{1}, value, row, column);
      }
    }
  }

  const AttentionShape& shape_;
  const AttentionBackwardArrays<Element>& arrays_;
  Grid grid_;
  const BlockIo<Arithmetic> io_;
  // Factors of the key head: [rows, columns].
  Packed* keys_;             // K, left factor
  Packed* keys_transposed_;  // K^T, left factor
  Packed* values_;           // V, left factor
  Real* key_gradient_;
  Real* value_gradient_;
  QueryPanel<Arithmetic> queries_;
  // Keys and queries at hand: [kKeyBlocks, kQueryBlocks].
  Packed* probabilities_;         // P^T, left factor
  Packed* score_gradient_;        // dS^T, left factor
  Packed* score_gradient_right_;  // dS^T, right factor
  // One block of S^T, of dP^T, and of the slopes where scores have a cap.
  Real* scores_;
  Real* probability_gradient_;
  Real* slopes_;
};

}  // namespace muster::attention
