// SharedControlBlock: the page on which the ranks of one host show each other how far they are, and
// the staging memory beside it.
//
// Every rank has a line of counters that it alone advances, a ring of notices that say what it has
// issued, and a bell. A rank that waits for its peers spins for a moment and then sleeps on its own
// bell (a futex); a rank that advances a counter rings the bells of those that sleep. So no rank
// runs in circles, and a wait can be ended from any thread.
//
// Nothing here trusts time: a rank that is stopped, or belongs to a generation long gone, can only
// write to the memory of its own group.
//
// Owned by a SharedTransport; one object per rank, over one memory. Threads: End and Left may be
// called by any thread, everything else by the trainer's alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "trainer/comm/transport.h"

namespace muster {

// What a rank has issued, as its peers must know it.
struct OpDescriptor {
  CollectiveOp kind;
  ElementType type;      // of what the peers read
  ElementType sum_type;  // kReduceScatter
  ReduceOp op;
  std::int32_t root;
  std::uint64_t count;  // kAllToAll: bytes of its longest block for a peer
  // Where the peers find it: the number of a region and the offset from its start, for kPerRank
  // from the start of this rank's bytes; -1: in memory of its own.
  std::int32_t region;
  std::uint64_t offset;
  bool in_place;  // kAllGather: the shard lies at its own place
};

// How far a rank is. Each counter only grows.
struct alignas(64) SharedLine {
  std::atomic<std::uint64_t> issued;    // operations whose notice is up
  std::atomic<std::uint64_t> finished;  // operations for which it reads no peer's memory any more
  std::atomic<std::uint64_t> written;   // pieces put into its staging memory
  std::atomic<std::uint64_t> read;      // pieces taken from all ranks'
  std::atomic<std::uint64_t> gave_up;   // the first operation that it refuses; 0: none
};

class SharedControlBlock {
 public:
  using Counter = std::atomic<std::uint64_t> SharedLine::*;
  // Operations that may be issued before the oldest is finished everywhere.
  static constexpr std::uint64_t kNotices = 32;
  // Of staging memory, for one rank's part of one piece. Small enough for the second-level cache,
  // large enough that the signals between ranks do not matter.
  static constexpr std::size_t kPieceBytes = 256 * 1024;

  static std::size_t Bytes(int size);

  // `memory` has Bytes(size), zeroed before the first rank came.
  SharedControlBlock(std::shared_ptr<std::byte> memory, int rank, int size);

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Sets a counter of this rank; peers that see it see all that was written before.
  void Advance(Counter counter, std::uint64_t to);
  bool Reached(Counter counter, std::uint64_t at_least) const;
  // Waits until all peers' counters are there. kDeadlineExceeded names those that are missing,
  // kUnavailable one that has left or given up; else what End was given.
  Status Await(Counter counter, std::uint64_t at_least, Deadline deadline);

  // The notice of operation `number`, which overwrites that of `number` - kNotices.
  OpDescriptor& Notice(int rank, std::uint64_t number) const;
  // Where `rank` puts its part of a piece; of every two pieces in a row each has its own place.
  std::byte* Staging(int rank, std::uint64_t piece) const;

  // This rank does not do the operation that it is at, nor any other. Peers that are at it learn
  // why by another way.
  void GiveUp();

  // Ends every wait under way or to come; the first reason stays. Returns the reason that counts.
  Status End(const Status& reason);
  // A peer left in order: waits for what it has not done fail.
  void Left(int peer);
  Status outcome() const;

 private:
  struct alignas(64) Futex {
    std::atomic<std::uint32_t> rings;  // the futex
    std::atomic<std::uint32_t> sleeping;
  };
  struct Place;

  Place& At(int rank) const;
  bool AwaitSpinning(Counter counter, std::uint64_t at_least) const;
  std::vector<int> Missing(Counter counter, std::uint64_t at_least) const;
  Status WhyNot(const std::vector<int>& missing, Deadline deadline) const;
  // OK: no peer has given up the operation that this rank is at. What ends at one rank must not
  // look done at another because of what the first had put down before.
  Status CheckPeers() const;
  void WakePeers();

  const std::shared_ptr<std::byte> memory_;
  const int rank_;
  const int size_;
  const bool spins_;
  std::atomic<bool> ended_ = false;
  std::vector<std::atomic<bool>> left_;
  mutable std::mutex mutex_;
  Status outcome_;
};

}  // namespace muster
