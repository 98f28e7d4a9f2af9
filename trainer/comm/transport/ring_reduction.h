// RingReduction: one reduce-scatter of blocks round a ring, in bounded scratch memory.
//
// Every block is cut into chunks. In step s a rank sends its right neighbour one chunk of the block
// s+1 places behind its own, with what s ranks before it have added, and receives the same of the
// block before that; the last step completes its own block. Chunks go in groups of kWindow, so
// that a rank has that many on the wire in each direction, and never more: a send takes its turn
// when all but kWindow of the receives before it are worked off. As the receives are posted just as
// far ahead, the rank that is furthest behind can always go on.
//
// Lives for one operation; called by one thread.
#pragma once

#include <cstddef>
#include <deque>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "trainer/comm/collectives.h"
#include "trainer/comm/transport/reduce.h"
#include "trainer/comm/transport/ring_link.h"

namespace muster {

class RingReduction {
 public:
  struct Args {
    Operand full;  // `total` elements, one block after the other
    std::size_t total = 0;
    std::size_t block = 0;  // elements; the last blocks may be shorter or empty
    ElementType sum_type = ElementType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    ReduceTarget own;  // this rank's block
  };
  static std::size_t ScratchBytes();

  // `scratch` has ScratchBytes(); `link` and `scratch` outlive the object.
  RingReduction(RingLink& link, int rank, int size, const Args& args, std::byte* scratch);

  Status Run(Deadline deadline);

 private:
  // One chunk on its way from left to right, numbered in the order that all ranks keep.
  struct Transfer {
    std::size_t chunk;
    int step;
    std::size_t stride;  // transfers to the same chunk's next step
  };
  struct Range {
    std::size_t begin;
    std::size_t count;
  };
  Transfer At(std::size_t index) const;
  Range RangeOf(int steps_behind, std::size_t chunk) const;
  Operand Local(const Range& range) const;
  std::byte* SendSlot(std::size_t index) const;
  std::byte* ReceiveSlot(std::size_t index) const;

  Status PostReceive(std::size_t index);
  // Sends whatever may be sent once `done` receives are worked off.
  Status SendReady(std::size_t done, Deadline deadline);
  Status Send(std::size_t index, const Transfer& transfer, Deadline deadline);
  Status WorkOff(std::size_t index, Deadline deadline);
  // Waits until at most the sends from `index` on are under way.
  Status SettleSends(std::size_t index, Deadline deadline);

  RingLink& link_;
  const int rank_;
  const int size_;
  const Args args_;
  std::byte* const scratch_;
  const std::size_t chunk_;      // elements
  const std::size_t chunks_;     // of a block
  const std::size_t transfers_;  // in each direction
  std::size_t sent_ = 0;
  std::deque<std::size_t> under_way_;  // sends that were not waited for
};

}  // namespace muster
