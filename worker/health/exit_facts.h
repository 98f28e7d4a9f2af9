// ExitFacts: adds to a rank's exit what the kernel's log says of its process.
//
// Remembers the processes of ranks, and of the log's newest events those that name a process.
// Completing an exit twice changes nothing more. Pure; any one thread.
#pragma once

#include <deque>
#include <map>
#include <tuple>

#include "common/wire/messages.h"
#include "worker/health/kernel_log.h"

namespace muster::worker {

class ExitFacts {
 public:
  // `same_pids`: the log's process ids are those that this process sees (InInitialPidNamespace).
  // Otherwise they could be anybody's, and nothing is added.
  explicit ExitFacts(bool same_pids) : same_pids_(same_pids) {}

  void OnStarted(const RankStarted& started);
  void OnKernelEvent(const KernelEvent& event);
  void OnReleased(const JobId& job);

  void Complete(RankExited* exited) const;
  void Complete(std::vector<HostedGeneration>* hosted) const;

 private:
  using Key = std::tuple<JobId, int>;
  struct Started {
    Generation generation = 0;
    pid_t pid = 0;
  };

  const bool same_pids_;
  std::map<Key, Started> started_;
  std::deque<KernelEvent> events_;  // oldest first
};

}  // namespace muster::worker
