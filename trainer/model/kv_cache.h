// KvCache: keys and values of the positions that a model has seen, so that a further position costs
// a forward pass of that position alone.
//
// Each block has its own pair of tensors [B, kv heads, capacity, head_dim], which double as
// positions come. A model with a sliding window keeps what its window reaches back to and no more.
//
// Owned by the code that generates; one thread. Shape errors are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/core/model_config.h"

namespace muster {

// The keys and values of one block.
class BlockCache {
 public:
  explicit BlockCache(std::optional<std::int64_t> window = {}) : window_(window) {}

  // [B, kv heads, S, head_dim]: the newest S positions. Views, valid until the next call.
  struct Held {
    at::Tensor key;
    at::Tensor value;
  };
  // Takes the next T positions, [B, kv heads, T, head_dim] each, and returns what these look at:
  // themselves and all before them that the window reaches.
  Held Append(const at::Tensor& key, const at::Tensor& value);
  // Forgets the positions from `length` on. False: what the window reaches back to is gone by now,
  // and nothing has changed.
  bool Truncate(std::int64_t length);
  bool CanTruncate(std::int64_t length) const;

  std::int64_t length() const { return begin_ + used_; }  // positions seen

 private:
  std::int64_t Reach() const { return window_ ? *window_ - 1 : begin_ + used_; }
  void MakeRoom(const at::Tensor& like, std::int64_t positions);

  const std::optional<std::int64_t> window_;
  std::int64_t begin_ = 0;  // position of the first one that is held
  std::int64_t used_ = 0;   // positions held
  at::Tensor key_;
  at::Tensor value_;
};

class KvCache {
 public:
  explicit KvCache(const ModelConfig& config);

  BlockCache& block(std::size_t index) { return blocks_[index]; }
  std::int64_t length() const { return blocks_.empty() ? 0 : blocks_.front().length(); }
  // As BlockCache::Truncate, for all blocks or for none.
  bool Truncate(std::int64_t length);

 private:
  std::vector<BlockCache> blocks_;
};

}  // namespace muster
