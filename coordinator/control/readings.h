// Readings: when which committed checkpoint is read again, by which node, and what follows from
// what it found. docs/checkpoint-format.md, "Read again", says what is promised.
//
// The first reading is the verification: once the commit record is written, each node reads the
// shards of its own ranks, at once and at full speed. One checkpoint of a job at a time, and after
// it the newest one alone. Where the nodes cannot tell, it is left to the scrub.
//
// A scrub reads in the background: one order at a time for a job and for a node. A round is about
// one checkpoint: nodes are asked one after the other until one of them can tell, those of the
// newest attempt first. Only bytes that are wrong, or files that a node of the gang's does not find
// in the job's own directory, are damage.
//
// The state is JobEntry::verification, JobEntry::scrub and State::readings. Only results are
// stored: a coordinator that starts again plans anew by when each checkpoint was verified last.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <optional>

#include "coordinator/control/transaction.h"

namespace muster::control {

// When RunReadings is due; nothing: no reading is due, and none is out.
std::optional<TimePoint> NextReadingDeadline(const State& state);

// Starts what is due, gives up what takes too long.
void RunReadings(Transaction& tx);

// The job's checkpoints, or its state, have changed.
void PlanScrubs(Transaction& tx, JobEntry& job);

// The node's stream has ended, and with it what it was to answer.
void GiveUpReadingsOf(Transaction& tx, const NodeName& node);

void Handle(Transaction& tx, const NodeName& node, const ManifestWritten& message);
void Handle(Transaction& tx, const NodeName& node, const CheckpointScrubbed& answer);
void On(Transaction& tx, const VerifyRequested& request);
// What the request began goes on, without an answer.
void On(Transaction& tx, const CallerGone& gone);

}  // namespace muster::control
