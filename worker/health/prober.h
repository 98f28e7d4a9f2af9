// Prober: an indirect probe of a suspect node (as in SWIM). Tries to reach the node's worker when
// the coordinator requests it, and reports the result: a worker that runs, a host without one, a
// host whose worker stands still, or nothing. A connection is not an answer: the kernel of a host
// on which nothing runs accepts it too. Only the worker's own actions count, a byte of its HTTP or
// the end of the connection.
//
// A failure that is no evidence about the other node (a name that cannot be resolved, no
// descriptors left here, more than 64 probes at once) gets no answer, as if this worker had not
// been asked. Loop thread only; nothing blocks; an answer comes within the probe's timeout.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/runtime/event_loop.h"
#include "common/wire/messages.h"

namespace muster::worker {

class Prober {
 public:
  struct Totals {
    std::uint64_t answered = 0;
    std::uint64_t refused = 0;
    std::uint64_t unreachable = 0;
    std::uint64_t silent = 0;   // a connection, and nothing over it
    std::uint64_t unknown = 0;  // without an answer of this worker
  };

  Prober(EventLoop& loop, std::function<void(const ProbeResult&)> tell);
  // Probes under way are abandoned.
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  void Start(const Probe& probe);
  const Totals& totals() const { return totals_; }

 private:
  class Attempt;
  void Finish(const Probe& probe, const ProbeOutcome* outcome);

  EventLoop& loop_;
  const std::function<void(const ProbeResult&)> tell_;
  int under_way_ = 0;
  Totals totals_;
  // Attempts that are under way keep it alive after this.
  std::shared_ptr<Prober*> self_;
};

}  // namespace muster::worker
