// GuardianGate: which events of a job's guardian its worker takes. Any process of the job's owner
// may be at the other end of the connection, so that what is named there may be none of the job's,
// and there may be any number of it.
//
// One for each job, over all its guardians, so that a new connection brings no new allowance. Owned
// by AgentRunner. Pure; time is an argument; any one thread.
#pragma once

#include <cstddef>

#include "common/base/clock.h"
#include "common/wire/messages.h"
#include "worker/guardian/protocol.h"

namespace muster::worker {

class GuardianGate {
 public:
  enum class Verdict {
    kTake,
    kIgnore,   // about a rank that the job does not have on this node
    kTooMany,  // more than the job's ranks and a replay can cause
  };

  // `prepare`: the job's newest.
  Verdict Admit(const GuardianEvent& event, const Prepare& prepare, TimePoint now);
  // Whether to connect again to one that has closed its connection.
  bool AdmitConnection(TimePoint now) { return Take(now); }
  // How many were ignored that no order of the coordinator explains.
  std::size_t ignored() const { return ignored_; }

 private:
  bool Take(TimePoint now);

  std::size_t ranks_ = 0;  // the most that a generation has had here
  double taken_ = 0;       // of the allowance, by `at_`
  TimePoint at_;
  std::size_t ignored_ = 0;
};

}  // namespace muster::worker
