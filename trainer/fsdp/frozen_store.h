// FrozenStore: the memory in which one engine's frozen weights lie, and whether they lie there
// already, as an earlier engine, of this process or another one, has left them.
//
// Behind the bytes of weights in host memory is their mark:
//
//   u64   content: what the bytes are once they are complete, else 0
//   f32   for each packed matrix, what double quantisation takes off its absmax
//
// The content is a hash of the layout, the form, the model's files and, but for an array of all
// ranks, of whose shard it is: equal contents are equal bytes. It is written after all ranks of the
// shard group have filled their parts, so that no rank finds half.
//
// Owned by FrozenWeights; the trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/fsdp/retained_weights.h"
#include "trainer/ops/device_ops.h"

namespace muster {

struct FrozenStoreOptions {
  RetainedWeights* retained = nullptr;  // null: nothing outlives the engine
  std::uint64_t content = 0;            // without the rank
  int rank = 0;                         // of the shard group
  std::int64_t matrices = 0;            // that are packed
  bool in_host_memory = false;          // of a device's weights
};

class FrozenStore {
 public:
  FrozenStore(DeviceOps& ops, FrozenStoreOptions options) : ops_(ops), options_(options) {}

  // For an array that all ranks of the group share: bytes that the region has behind it, the file
  // to make the region from (-1: a new one), and the region that was made.
  std::size_t mark_bytes() const;
  int shared_file() const;
  void UseShared(const SharedRegion& region, std::size_t array_bytes);
  // For this rank's own: zeroed, or what the retained memory has. kResourceExhausted, and what the
  // system says.
  Result<at::Tensor> Allocate(std::size_t bytes);

  // What the weights are.
  std::uint64_t content() const { return content_; }
  // Whether they lie in the memory already.
  bool complete() const;
  // By packed matrix; of complete ones.
  std::vector<float> offsets() const;
  // They lie there from now on, and stay when the engine ends.
  Status Complete(const std::vector<float>& offsets);

 private:
  struct Mark;

  std::uint64_t ContentOf(std::uint64_t part) const;
  Result<at::Tensor> MapFile(std::size_t bytes);

  DeviceOps& ops_;
  const FrozenStoreOptions options_;
  std::uint64_t content_ = 0;  // of what is used
  Mark* mark_ = nullptr;       // in host memory that outlives the engine
  int file_ = -1;              // of that memory
  bool shared_ = false;
  UniqueFd own_file_;
  at::Tensor device_;  // memory of a device that does
  std::shared_ptr<void> pinned_;
};

}  // namespace muster
