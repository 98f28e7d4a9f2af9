// Readings: when which committed checkpoint is read again, by which node, and what follows from the
// result. docs/checkpoint-format.md, "Read again", states the guarantees.
//
// The first reading is the verification: once the commit record is written, each node reads the
// shards of its own ranks, at once and at full speed. One checkpoint of a job is verified at a
// time, and after it only the newest one. If the nodes cannot verify it, the scrub does.
//
// A scrub reads in the background: one order at a time for a job and for a node. A round concerns
// one checkpoint: nodes are asked one after the other until one of them can read it, those of the
// newest attempt first. Damage is only wrong bytes, or files that a node of the gang does not find
// in the job's own directory.
//
// The state is JobEntry::verification, JobEntry::scrub and State::readings. Only results are
// stored: a coordinator that restarts plans again from the time of each checkpoint's last reading.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <optional>

#include "coordinator/control/transaction.h"

namespace muster::control {

// When RunReadings is due; empty: no reading is due, and none is outstanding.
std::optional<TimePoint> NextReadingDeadline(const State& state);

// Starts what is due, gives up what takes too long.
void RunReadings(Transaction& tx);

// The job's checkpoints, or its state, have changed.
void PlanScrubs(Transaction& tx, JobEntry& job);

// The node's stream has ended, and its outstanding answers with it.
void GiveUpReadingsOf(Transaction& tx, const NodeName& node);

void Handle(Transaction& tx, const NodeName& node, const ManifestWritten& message);
void Handle(Transaction& tx, const NodeName& node, const CheckpointScrubbed& answer);
void On(Transaction& tx, const VerifyRequested& request);
// What the request began continues, without a reply.
void On(Transaction& tx, const CallerGone& gone);

}  // namespace muster::control
