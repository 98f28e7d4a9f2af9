// What is over leaves memory: jobs for the archive, archived jobs for good, and lost nodes that
// hold nothing any more.
//
// A job is archived once it has been over for ControllerOptions::retain and no order about it is
// out. Its processes may still be on nodes that are lost: a node that comes back is sent a Release
// for each job that it hosts and that is not known.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <cstdint>
#include <optional>

#include "coordinator/control/transaction.h"

namespace muster::control {

// The job is over: sets when it is archived.
void PlanArchiving(Transaction& tx, const JobEntry& job);

// An earlier coordinator lost the node: sets when it is forgotten.
void PlanForgetting(Transaction& tx, NodeEntry& node);

// When an archived job that has ended then is deleted; max(): never.
TimePoint DeletionTime(const Transaction& tx, std::int64_t ended_unix_ms);

// When ArchiveDue has something to do; nothing: never.
std::optional<TimePoint> NextArchiving(const State& state);

// Archives the jobs that are due, a few hundred at most, so that one commit stays small; deletes
// archived ones that are due.
void ArchiveDue(Transaction& tx);

// The node, if it is due and nothing is left of it.
void ForgetIfDue(Transaction& tx, NodeEntry& node);

}  // namespace muster::control
