// Checkpoints: shards gathered, committed under the generation, announced, verified (readings.h),
// pruned. Nothing is pruned before a newer one is verified.
//
// A checkpoint that is not committed does not exist. Every shard has passed Fence, which compares
// its generation with the job's current one. Nothing else runs between that and the commit, so this
// is the compare-and-set that keeps a stale gang from publishing.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "coordinator/control/transaction.h"

namespace muster::control {

// From now on the output directory belongs to the job.
void RegisterOutput(Transaction& tx, const JobRecord& job);

// Whether no newer job writes to its output directory. False for an archived job, of whose
// directory no owner is kept in memory.
bool OwnsOutput(const Transaction& tx, const JobEntry& job);

void OnShardWritten(Transaction& tx, JobEntry& job, int rank, const ShardWritten& written);
void OnCheckpointFailed(Transaction& tx, JobEntry& job, int rank, const CheckpointFailed& failed);
// A rank found it unusable.
void RefuseCheckpoint(Transaction& tx, JobEntry& job, const RejectedCheckpoint& rejected);

// Commits the checkpoint that has all shards; false: there is none. There is one at most: a newer
// one discards it.
bool CommitComplete(Transaction& tx, JobEntry& job);

// The same, unless too many committed ones wait to be verified.
bool CommitUnlessTooMany(Transaction& tx, JobEntry& job);

// Discards checkpoints that have a step below `before` and are not committed.
void DiscardUnfinished(Transaction& tx, JobEntry& job,
                       Step before = std::numeric_limits<Step>::max());

void PruneOld(Transaction& tx, JobEntry& job);
// The directory was removed from disk.
void ForgetPruned(Transaction& tx, JobEntry& job, const std::string& directory);

// Sends the commit again to a node that may have missed it.
void ResendCommitted(Transaction& tx, JobEntry& job, const NodeName& node);

// The checkpoints that the job's next gang is offered to resume from, best first.
std::vector<CheckpointRecord> ResumePoints(const JobEntry& job);

}  // namespace muster::control
