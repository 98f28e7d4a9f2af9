// EventParts: the newest events of a job or of the cluster as parts of a document.
//
// Owned by a PageDocument; pure, one thread. Each event is read once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>

#include "coordinator/control/controller.h"
#include "coordinator/page/revised_parts.h"

namespace muster {

class EventParts {
 public:
  // `job` empty: all events.
  EventParts(JobId job, std::size_t most) : job_(std::move(job)), most_(most) {}

  // Parts "event/SEQ", the newest `most` of them. `sees`: whether those of a job are shown; not
  // set: all are.
  void Update(const std::deque<EventRecord>& events, RevisedParts& parts,
              const std::function<bool(const JobId& job)>& sees = nullptr);

 private:
  const JobId job_;
  const std::size_t most_;
  std::uint64_t seen_ = 0;
  std::deque<std::uint64_t> shown_;
};

}  // namespace muster
