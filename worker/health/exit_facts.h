// ExitFacts: adds the kernel log's facts about its process to a rank's exit.
//
// Remembers the processes of ranks, and the log's newest events that name a process. Completing an
// exit twice changes nothing more. Pure; any one thread.
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
  // Otherwise they are ambiguous, and nothing is added.
  explicit ExitFacts(bool same_pids) : same_pids_(same_pids) {}

  void OnStarted(const RankStarted& started);
  // An Xid's device is named as people know it.
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
