// The collectives as ring algorithms over a RingLink: what communicators without shared memory and
// without NCCL run.
//
// Synchronous; called by one thread. Sums are taken in an order fixed by rank and size: block b of
// a reduce-scatter is added up in the order b+1, b+2, ... b (modulo size), a small all-reduce in
// the order 0, 1, 2, .... Blocks travel in chunks, so that adding one overlaps with receiving the
// next, and in the type that partial sums have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "trainer/comm/collectives.h"
#include "trainer/comm/transport/ring_link.h"

namespace muster {

class RingCollectives {
 public:
  // `link` may be null for size 1 and outlives the object.
  RingCollectives(RingLink* link, int rank, int size) : link_(link), rank_(rank), size_(size) {}

  // As in communicator.h, but these return when done.
  Status AllGather(const void* shard, void* full, std::size_t bytes, Deadline deadline);
  Status ReduceScatter(const ReduceScatterArgs& args, Deadline deadline);
  Status AllReduce(void* data, std::size_t count, ElementType type, ReduceOp op, Deadline deadline);
  Status Broadcast(void* data, std::size_t bytes, int root, Deadline deadline);
  Status RingSendRecv(const void* send, void* receive, std::size_t bytes, Deadline deadline);
  // Blocks go from neighbour to neighbour until they are where they belong, in parts, so that what
  // a rank holds for others is bounded.
  Status AllToAll(const Operation& operation, Deadline deadline);
  Status Barrier(Deadline deadline);

 private:
  // A buffer cut into one block per rank, of `block` bytes each; the last ones may be shorter.
  struct Blocks {
    std::byte* data;
    std::size_t total;
    std::size_t block;
  };
  struct Segment {
    std::size_t offset;
    std::size_t bytes;
  };
  // A part of each block of an all-to-all: its bytes from `begin` on, at most `length` of them.
  struct BlockParts {
    const std::vector<std::uint64_t>& blocks;  // of each rank for each, row by row
    std::size_t begin;
    std::size_t length;
    std::size_t Bytes(int from, int to, int size) const;
  };
  static std::vector<Segment> SegmentsOf(const Blocks& blocks, int block);
  int Block(int offset) const { return ((rank_ + offset) % size_ + size_) % size_; }

  Status PassParts(const Operation& operation, const BlockParts& parts, Deadline deadline);
  Status GatherBlocks(const Blocks& blocks, Deadline deadline);
  Status SmallAllReduce(void* data, std::size_t count, ElementType type, ReduceOp op,
                        Deadline deadline);
  Status WaitSends(std::size_t count, Deadline deadline);
  std::byte* Scratch(std::size_t bytes);

  RingLink* const link_;
  const int rank_;
  const int size_;
  std::vector<std::byte> scratch_;  // held; some MiB whatever the operations' sizes
};

}  // namespace muster
