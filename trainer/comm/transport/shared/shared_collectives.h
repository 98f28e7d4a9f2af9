// The collectives over shared memory: what every communicator runs whose ranks are on one host.
//
// Operations whose memory lies in regions that all ranks map are done in place: an all-gather moves
// nothing, a reduce-scatter reads every peer's bytes once, all in one pass. Anything else goes
// through staging memory piece by piece, while the ranks write one piece and read the one before.
// Sums are taken in the order of ring_collectives.h, so the bits are the same.
//
// Synchronous; called by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "trainer/comm/transport.h"
#include "trainer/comm/transport/reduce.h"
#include "trainer/comm/transport/shared/shared_control_block.h"

namespace muster {

class SharedCollectives {
 public:
  explicit SharedCollectives(SharedControlBlock& board)
      : control_block_(board), rank_(board.rank()), size_(board.size()) {}

  // Regions are numbered in the order in which they are added, alike on all ranks; they may go
  // before this object does. kPerRank: `stride` bytes for each rank.
  void AddRegion(RegionKind kind, const std::shared_ptr<std::byte>& memory, std::size_t bytes,
                 std::size_t stride);

  OpDescriptor NoticeOf(const Operation& operation) const;

  // What follows needs the notices of all ranks: every rank has issued `number`.
  // kInternal if the ranks have issued different operations.
  Status CheckAgreement(std::uint64_t number) const;
  // Whether Execute waits for no peer.
  bool IsInPlace(std::uint64_t number) const;
  // Peers read this rank's memory until they have finished the operation.
  bool IsReadByPeers(std::uint64_t number) const;

  // `bytes` is raised by what was read from peers.
  Status Execute(const Operation& operation, std::uint64_t number, Deadline deadline,
                 std::uint64_t* bytes);

 private:
  struct Region {
    RegionKind kind;
    std::weak_ptr<std::byte> memory;
    std::size_t bytes;
    std::size_t stride;
  };
  // A buffer of one block per rank; the last ones may be shorter or empty. In elements.
  struct Blocks {
    std::size_t total;
    std::size_t block;
    std::size_t Begin(int rank, std::size_t offset) const;
    std::size_t Count(int rank, std::size_t offset, std::size_t length) const;
  };

  void Locate(const void* data, std::size_t bytes, OpDescriptor* notice) const;
  const OpDescriptor& Notice(int rank, std::uint64_t number) const {
    return control_block_.Notice(rank, number);
  }
  // All ranks named a region of that kind.
  bool AllIn(RegionKind kind, std::uint64_t number) const;

  Status AllGather(const Operation& operation, std::uint64_t number, Deadline deadline);
  Status ReduceScatter(const ReduceScatterArgs& args, std::uint64_t number, Deadline deadline);
  Status ReduceInPlace(const ReduceScatterArgs& args, std::uint64_t number);
  Status AllReduce(const Operation& operation, Deadline deadline);
  Status SmallAllReduce(const Operation& operation, Deadline deadline);
  Status Broadcast(const Operation& operation, Deadline deadline);
  Status RingSendRecv(const Operation& operation, Deadline deadline);
  Status AllToAll(const Operation& operation, std::uint64_t number, Deadline deadline);

  Status ReduceBlocks(const Operand& full, const Blocks& blocks, ElementType sum_type, ReduceOp op,
                      const ReduceTarget& own, Deadline deadline);
  // `own` is this rank's block, wherever it lies.
  Status GatherBlocks(const std::byte* own, std::byte* full, const Blocks& blocks,
                      Deadline deadline);
  // Both are called with the number of a piece, in order, and with that piece's place in staging.
  Status RunPieces(std::size_t pieces, const std::function<void(std::size_t, std::byte*)>& write,
                   const std::function<void(std::size_t, std::uint64_t)>& read, Deadline deadline);

  SharedControlBlock& control_block_;
  const int rank_;
  const int size_;
  std::vector<Region> regions_;
  std::uint64_t pieces_ = 0;  // that went through staging since the group formed
  std::uint64_t bytes_ = 0;   // read from peers
};

}  // namespace muster
