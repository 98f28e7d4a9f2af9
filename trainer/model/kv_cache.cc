#include "trainer/model/kv_cache.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace muster {
namespace {

constexpr std::int64_t kFirstCapacity = 64;

at::Tensor Empty(const at::Tensor& like, std::int64_t capacity) {
  return at::empty({like.size(0), like.size(1), capacity, like.size(3)}, like.options());
}

}  // namespace

// What the window does not reach any more is left behind when the memory is full: half of it at
// least, so that a position is moved once on average.
void BlockCache::MakeRoom(const at::Tensor& like, std::int64_t positions) {
  const std::int64_t capacity = key_.defined() ? key_.size(2) : 0;
  if (used_ + positions <= capacity) return;
  const std::int64_t kept = std::min(Reach(), used_);
  const std::int64_t wanted = std::max(kFirstCapacity, 2 * (kept + positions));
  at::Tensor key = Empty(like, wanted), value = Empty(like, wanted);
  if (kept > 0) {
    key.narrow(2, 0, kept).copy_(key_.narrow(2, used_ - kept, kept));
    value.narrow(2, 0, kept).copy_(value_.narrow(2, used_ - kept, kept));
  }
  key_ = std::move(key);
  value_ = std::move(value);
  begin_ += used_ - kept;
  used_ = kept;
}

BlockCache::Held BlockCache::Append(const at::Tensor& key, const at::Tensor& value) {
  const std::int64_t positions = key.size(2);
  MakeRoom(key, positions);
  key_.narrow(2, used_, positions).copy_(key);
  value_.narrow(2, used_, positions).copy_(value);
  const std::int64_t seen = std::min(Reach(), used_) + positions;
  used_ += positions;
  return {.key = key_.narrow(2, used_ - seen, seen), .value = value_.narrow(2, used_ - seen, seen)};
}

bool BlockCache::CanTruncate(std::int64_t length) const {
  if (length >= this->length()) return true;
  const std::int64_t first_needed = window_ ? std::max<std::int64_t>(0, length - Reach()) : 0;
  return length >= begin_ && first_needed >= begin_;
}

bool BlockCache::Truncate(std::int64_t length) {
  if (!CanTruncate(length)) return false;
  used_ = std::min(used_, length - begin_);
  return true;
}

KvCache::KvCache(const ModelConfig& config) {
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    blocks_.emplace_back(config.WindowOf(layer));
  }
}

bool KvCache::Truncate(std::int64_t length) {
  // Layers may have windows of their own, so that one can and another cannot.
  const bool all = std::all_of(blocks_.begin(), blocks_.end(),
                               [&](const BlockCache& block) { return block.CanTruncate(length); });
  if (!all) return false;
  for (BlockCache& block : blocks_) block.Truncate(length);
  return true;
}

}  // namespace muster
