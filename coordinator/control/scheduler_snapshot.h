// The scheduler's view of the State: what waits, what is free, what runs until when.
//
// Pure functions of the State; private to coordinator/control; one thread.
#pragma once

#include <cstdint>

#include "coordinator/control/state.h"
#include "coordinator/scheduler/scheduler.h"

namespace muster::control {

// Points into the State: used before the next event. Without requests it has nodes only if
// `always_nodes`.
SchedulerSnapshot SnapshotOf(const State& state, const Now& now, bool always_nodes = false);

// The same without waiting jobs that have neither arrived since the last pass nor a plan.
SchedulerSnapshot SnapshotOfArrived(const State& state, const Now& now);

// What the job asks for, by its place in a tree that begins as the State's.
GangRequest RequestOf(const State& state, const Now& now, const JobEntry& job,
                      const ShareTree& shares);

// A number that stands for nodes, queues and jobs as far as placements depend on them, and for
// which gangs may give way: while it is the same, so is the plan of the same job file. Below 2^49.
std::uint64_t IndexOf(const State& state, const Now& now);

// The node takes jobs.
bool IsReady(const NodeEntry& node);

// A node of its last gang is silent, and may be back.
bool FormerNodeSuspect(const State& state, const JobEntry& job);

}  // namespace muster::control
