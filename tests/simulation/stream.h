// SimStream: what is under way between one worker and the coordinator, as two lanes.
//
// A lane keeps its order and loses nothing as long as the stream lasts. What becomes of the rest
// when it ends is the world's to decide (streams.cc).
#pragma once

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "coordinator/control/events.h"
#include "tests/simulation/event_queue.h"

namespace muster::sim {

template <typename Message>
struct Lane {
  std::deque<Message> under_way;
  int held = 0;  // arrivals that wait: for the end of a cut, or until the one before is taken
  bool taking = false;  // one has been handed over and not yet been taken
  TimePoint last;

  // When the newest message arrives that takes `delay`, behind those before it.
  TimePoint Arrival(TimePoint now, Duration delay) { return last = std::max(last, now + delay); }
  Message Take() {
    Message message = std::move(under_way.front());
    under_way.pop_front();
    return message;
  }
};

struct SimStream {
  SessionId session = 0;  // 0: none
  bool welcomed = false;
  bool cut_off = false;   // the node cannot be reached
  bool given_up = false;  // closed by the coordinator while the node was cut off
  bool spoke = false;     // since the last heartbeat was due
  Lane<Event> up;
  Lane<CoordinatorMessage> down;
  std::vector<WorkerMessage> kept;  // by the worker for its next stream
};

}  // namespace muster::sim
