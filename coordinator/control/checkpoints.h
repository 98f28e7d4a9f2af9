// Checkpoints: shards gathered, committed under the generation, announced, pruned. Between the last
// two each is verified (readings.h): nothing is pruned before a newer one was found whole.
//
// What is not committed does not exist. Every shard has passed Fence, which compares its generation
// with the job's current one; as nothing else runs between that and the commit, this is the
// compare-and-set that keeps a stale gang from publishing.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "coordinator/control/transaction.h"

namespace muster::control {

// The output directory is the job's own from now on.
void RegisterOutput(Transaction& tx, const JobRecord& job);

// Whether no newer job writes to its output directory.
bool OwnsOutput(const Transaction& tx, const JobEntry& job);

void OnShardWritten(Transaction& tx, JobEntry& job, int rank, const ShardWritten& written);
void OnCheckpointFailed(Transaction& tx, JobEntry& job, int rank, const CheckpointFailed& failed);
// A rank found it unusable.
void RefuseCheckpoint(Transaction& tx, JobEntry& job, int rank, const RejectedCheckpoint& rejected);

// Commits what has all its shards; false: nothing has.
bool CommitComplete(Transaction& tx, JobEntry& job);

// The same, unless too many committed ones wait to be read.
bool CommitUnlessTooMany(Transaction& tx, JobEntry& job);

// Discards what has a step below `before` and is not committed.
void DiscardUnfinished(Transaction& tx, JobEntry& job,
                       Step before = std::numeric_limits<Step>::max());

void PruneOld(Transaction& tx, JobEntry& job);
// The directory is off the disk.
void ForgetPruned(Transaction& tx, JobEntry& job, const std::string& directory);

// To a node that may have missed it.
void ResendCommitted(Transaction& tx, JobEntry& job, const NodeName& node);

// What the job's next gang is offered to resume from, the best first.
std::vector<CheckpointRecord> ResumePoints(const JobEntry& job);

}  // namespace muster::control
