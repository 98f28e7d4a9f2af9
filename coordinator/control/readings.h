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
#include <set>
#include <string>
#include <vector>

#include "coordinator/control/transaction.h"

namespace muster::control {

// When RunReadings is due; empty: no reading is due, and none is outstanding.
std::optional<TimePoint> NextReadingDeadline(const State& state);

// Starts the readings that are due, and gives up those that take too long.
void RunReadings(Transaction& tx);

// The job's checkpoints, or its state, have changed.
void PlanScrubs(Transaction& tx, JobEntry& job);

// The node's stream has ended: its outstanding orders will have no answer.
void GiveUpReadingsOf(Transaction& tx, const NodeName& node);

void Handle(Transaction& tx, const NodeName& node, const ManifestWritten& message);
void Handle(Transaction& tx, const NodeName& node, const CheckpointScrubbed& answer);
// Reads these checkpoints now.
void ReadAgain(Transaction& tx, JobEntry& job, std::set<std::string> directories);
// Reads all that are committed now, and replies to these requests.
void ReadAllAgain(Transaction& tx, JobEntry& job, const std::vector<RequestId>& requests);
// Neither an order nor a request for a scrub is outstanding.
bool NothingToRead(const JobEntry& job);

}  // namespace muster::control
