// ShardImage: a sealed copy of one rank's shard, in the form in which its file will hold it.
//
// The memory is one mapping that is allocated and touched once and kept between saves, so that a
// save costs the copy and nothing else. It is the only memory that checkpoints take: one shard.
// Owned by the checkpointer, which sees to it that Reserve, Capture and readers do not overlap.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "trainer/state/checkpoint/shard_header.h"

namespace muster {

struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::byte* memory) const;
};

class ShardImage {
 public:
  // Allocates and touches the memory for such arrays (in huge pages where there are any), unless
  // it is there already. Takes a fraction of a second per GB. Throws std::bad_alloc.
  void Reserve(const std::vector<ShardArray>& arrays);

  // Copies header.arrays[i].data, which lies in `memory`; reserves first where that was not done.
  void Capture(ShardHeader header, const ArrayMemory& memory = {});

  const ShardHeader& header() const { return header_; }  // of the last Capture
  // The data of the shard: aligned to pages, zeros between the arrays and up to a whole block.
  const std::byte* data() const { return memory_.get(); }
  std::size_t bytes() const { return memory_.get_deleter().bytes; }

 private:
  std::unique_ptr<std::byte, Unmap> memory_;
  ShardPlaces places_;
  ShardHeader header_;
};

}  // namespace muster
