// GuardianMirror: what a job's guardian has reported of the newest generation, which is what a
// Hello of the worker reports to the coordinator.
//
// Between a guardian's Hello and Synced its reports repeat what it has: they are gathered in
// `replay`, and what the mirror did not hold is sent when they are complete. Stale reports are
// dropped. Owned by HostedJob, to whose effects it adds; pure; any one thread.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "common/wire/messages.h"
#include "worker/agent/agent_effects.h"
#include "worker/guardian/protocol.h"

namespace muster::worker {

struct GuardianMirror {
  HostedGeneration hosted;
  std::optional<HostedGeneration> replay;

  // What reports are about now.
  HostedGeneration& Reported() { return replay ? *replay : hosted; }
  // A generation of which nothing is known.
  void Begin(const JobId& job, Generation generation) {
    hosted = {.job = job, .generation = generation};
  }

  void Apply(const GuardianHello& hello, Effects* effects);
  void Apply(const GuardianRankStarted& started, Effects* effects);
  void Apply(const GuardianRankExited& exited, Effects* effects);
  void Apply(const GuardianReport& report, Effects* effects);
  void Apply(const GuardianSegment&, Effects*) {}  // descriptors are the edge's
  void Apply(const GuardianAlive&, Effects*) {}    // that it lives, too

  // What `hosted` does not have of a replay of the same generation.
  void SendNews(const HostedGeneration& replayed, Effects* effects) const;
};

template <typename Entry>
bool HasRank(const std::vector<Entry>& entries, int rank) {
  return std::ranges::find(entries, rank, &Entry::rank) != entries.end();
}

}  // namespace muster::worker
