// What a collective takes and gives, as values: the same for a Communicator's callers and for the
// transports that run it.
#pragma once

#include <cstddef>
#include <vector>

#include "common/base/status.h"
#include "common/control_pipe/training_figures.h"
#include "trainer/core/element_type.h"

namespace muster {

enum class ReduceOp { kSum, kMin, kMax };

// One operation under way. Wait may be called once, by the thread that issued it.
class Work {
 public:
  virtual ~Work() = default;
  virtual Status Wait() = 0;
};

// shard[i] = op over the ranks of full[rank * count + i].
struct ReduceScatterArgs {
  void* full = nullptr;   // world size times count elements; scratch afterwards
  void* shard = nullptr;  // may lie at its own place in `full` if the types agree
  std::size_t count = 0;  // elements of a shard
  ElementType full_type = ElementType::kFloat32;
  // What partial sums are rounded to, and what travels between hosts. At least as wide as full_type
  // for sums that lose nothing on the way.
  ElementType sum_type = ElementType::kFloat32;
  ElementType shard_type = ElementType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool accumulate = false;  // add the result to what `shard` holds
};

// kInvalidArgument unless all types are floating point, or all are the same integer.
Status CheckReduceTypes(ElementType full, ElementType sum, ElementType shard);

// The bytes of blocks that lie one behind the other, one for each rank, in order; may be 0.
using BlockBytes = std::vector<std::size_t>;
// Where each block begins, and last where the last one ends.
std::vector<std::size_t> BlockBegins(const BlockBytes& blocks);

// Block r of `send` goes to rank r, and block r of `receive` comes from it. The buffers do not
// overlap and are both the host's or both the device's.
struct AllToAllArgs {
  const void* send = nullptr;
  void* receive = nullptr;
  BlockBytes send_bytes;
  BlockBytes receive_bytes;  // the same as what those ranks send here
};

// kInvalidArgument unless there is a block for each rank, and one's own is as long on both sides.
Status CheckAllToAll(const AllToAllArgs& args, int rank, int size);

// One collective, as its caller asked for it (communicator.h).
struct Operation {
  CollectiveOp kind = CollectiveOp::kBarrier;
  // kAllGather: the shard; kRingSendRecv, kAllToAll: what is sent
  const void* source = nullptr;
  void* data = nullptr;   // kAllGather: full; kRingSendRecv, kAllToAll: received; others: data
  std::size_t count = 0;  // elements; kBroadcast and kRingSendRecv: bytes
  ElementType type = ElementType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  ReduceScatterArgs reduce_scatter;
  BlockBytes send_bytes = {};  // kAllToAll
  BlockBytes receive_bytes = {};
};

// kInternal: a block is not as long as the rank that receives it expects.
Status OtherBlock(int sender, std::size_t sent, int receiver, std::size_t awaited);

// What a rank sends for it in a ring; kAllToAll: of its own.
std::size_t BytesSent(const Operation& operation, int rank, int size);

// How ranks of one host see a region of shared memory.
enum class RegionKind {
  kCommon,   // one array of `bytes` bytes that every rank maps: each writes its part, all read
  kPerRank,  // `bytes` bytes for each rank; the peers only read them
};

// Memory that all ranks of a communicator map, aligned to pages. The owner keeps it no longer than
// the communicator stays formed: peers of a later generation have other regions. What is not
// written to any more can live on by its file.
class SharedRegion {
 public:
  virtual ~SharedRegion() = default;
  // kCommon: the start of the array; kPerRank: of this rank's bytes.
  virtual void* data() const = 0;
  // The region's own descriptor of the memory; -1: there is none.
  virtual int file() const = 0;
};

}  // namespace muster
