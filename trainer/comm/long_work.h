// LongWork: ranks do work that takes some of them much longer than others, and meet after it.
//
// Who is ready waits in a collective, and a collective has a time limit. Reading a large state may
// take one of hundreds of ranks longer than that without anything being wrong. So all meet every
// few minutes, ready or not, until all are ready; and the limit, which a job may have set for its
// steps, is a long one meanwhile.
//
// Made by every rank of the communicator at the same place, with no other collective before Await
// has returned. The trainer's thread.
#pragma once

#include "common/base/clock.h"
#include "common/base/status.h"
#include "trainer/comm/communicator.h"

namespace muster {

class LongWork {
 public:
  // Operations of a gang in which some rank may be at long work are given so much time at least.
  // A piece of the work, between two calls of Move, takes no longer than kLimit less kRound.
  static constexpr Duration kLimit = std::chrono::minutes(15);
  static constexpr Duration kRound = std::chrono::minutes(2);

  // `communicator` outlives the object.
  explicit LongWork(Communicator& communicator, Duration round = kRound, Duration limit = kLimit);

  // Something has got on. Call it often: between two calls there is time for a piece of the work.
  void Move();
  // This rank is ready: returns when all are, or with what went wrong in a meeting.
  Status Await();

 private:
  // `ready` becomes whether all ranks are.
  Status MeetOnce(std::int64_t* ready);

  Communicator& communicator_;
  const OperationLimit::AtLeast patient_;
  const Duration round_;
  TimePoint next_;
  Status status_;
};

}  // namespace muster
