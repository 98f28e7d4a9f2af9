// ShardImage: one rank's shard, sealed, in the form in which its file will hold it.
//
// It is a copy, or memory of the trainer that holds the arrays in this form and stays as it is for
// as long as it is needed. A copy's memory is one mapping that is allocated and touched once and
// kept between saves, so that a save costs the copy and nothing else. It is the only memory that
// checkpoints take: one shard. Owned by the checkpointer, which sees to it that Reserve, Capture,
// Refer and readers do not overlap.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "trainer/state/checkpoint/shard_header.h"

namespace muster {

struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::byte* memory) const;
};

// A shard in memory, as ShardImage::data() has it.
struct SealedShard {
  std::shared_ptr<const std::byte> data;  // its end lets go of the memory
  std::size_t bytes = 0;
  std::function<bool()> intact;  // whether the memory has stayed as it was; any thread
};

class ShardImage {
 public:
  // Allocates and touches the memory for such arrays (in huge pages where there are any), unless
  // it is there already. Takes a fraction of a second per GB. Throws std::bad_alloc.
  void Reserve(const std::vector<ShardArray>& arrays);

  // Copies header.arrays[i].data, which lies in `memory`; reserves first where that was not done.
  void Capture(ShardHeader header, const ArrayMemory& memory = {});

  // Holds `shard`, whose arrays are header.arrays, until LetGo or the next Capture or Refer.
  void Refer(ShardHeader header, SealedShard shard);
  // Whether the shard is still the one that was captured or referred to.
  bool intact() const { return !sealed_.intact || sealed_.intact(); }
  void LetGo() { sealed_ = {}; }

  const ShardHeader& header() const { return header_; }  // of the last Capture or Refer
  // The data of the shard: aligned to pages, zeros between the arrays and up to a whole block.
  const std::byte* data() const { return sealed_.data ? sealed_.data.get() : memory_.get(); }
  std::size_t bytes() const { return sealed_.data ? sealed_.bytes : memory_.get_deleter().bytes; }

 private:
  std::unique_ptr<std::byte, Unmap> memory_;
  ShardPlaces places_;
  ShardHeader header_;
  SealedShard sealed_;  // without data: the image is the copy
};

}  // namespace muster
