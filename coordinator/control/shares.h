// Where jobs count in the tree by which the scheduler shares the cluster (queues/share_tree.h):
// with their queue, and where the cluster has users with their owner in that queue.
//
// State::shares follows from the queues, from whether there are users, and from the jobs that are
// not over: a leaf is there before its first job is considered, and goes when the tree is built
// anew.
//
// Free functions over the State (state.h); private to coordinator/control; one thread.
#pragma once

#include <string>

#include "coordinator/control/state.h"

namespace muster::control {

// By its place in the tree; -1: nowhere.
int ShareOf(const State& state, const JobEntry& job);
// By what its usage is stored: "nlp/ada", or "nlp" where there are no users.
std::string UsageName(const State& state, const JobEntry& job);

// The job is live, or has moved to another queue.
void AddShare(State& state, const JobEntry& job);
// The queues have changed, or there are users now.
void RebuildShares(State& state);

// Whether the job waits may have changed.
void CountWaiting(State& state, JobEntry& job);
// Jobs of that owner that wait in the queue, where the cluster has users.
int WaitingOf(const State& state, std::string_view queue, std::string_view owner);

}  // namespace muster::control
