#include "trainer/comm/long_work.h"

namespace muster {

LongWork::LongWork(Communicator& communicator, Duration round, Duration limit)
    : communicator_(communicator),
      patient_(communicator.limit(), limit),
      round_(round),
      next_(SystemClock().Now() + round) {}

void LongWork::Move() {
  if (!status_.ok() || SystemClock().Now() < next_) return;
  std::int64_t ready = 0;
  status_ = MeetOnce(&ready);
  next_ = SystemClock().Now() + round_;
}

Status LongWork::Await() {
  for (std::int64_t ready = 0; status_.ok() && ready == 0;) {
    ready = 1;
    status_ = MeetOnce(&ready);
  }
  return status_;
}

Status LongWork::MeetOnce(std::int64_t* ready) {
  if (communicator_.size() == 1) return OkStatus();
  return communicator_.AllReduce(ready, 1, ElementType::kInt64, ReduceOp::kMin)->Wait();
}

}  // namespace muster
