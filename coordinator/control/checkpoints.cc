#include "coordinator/control/checkpoints.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "common/base/text.h"
#include "common/checkpoint_format/shard_name.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/words.h"

namespace muster::control {
namespace {

// Limit for one attempt at a time; the trainer has one or two.
constexpr std::size_t kMaxWriting = 16;
// Committed checkpoints that wait to be verified: one is being read, one comes next.
constexpr int kMaxUnread = 2;

// A directory must be a plain name below <output_dir>/checkpoints, because it is removed later.
bool IsPlainName(const std::string& directory) {
  return !directory.empty() && directory.size() <= 255 &&
         directory.find('/') == std::string::npos && directory != "." && directory != "..";
}

// The newest step of this generation in the records, which are durable: committed, or due for
// removal. -1: none.
Step NewestOnRecord(const JobEntry& job) {
  const Generation generation = job.attempts.back().generation;
  Step newest = -1;
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    if (checkpoint.generation == generation) newest = std::max(newest, checkpoint.step);
  }
  return newest;
}

// The same, including the checkpoint that has all shards and is not committed yet.
Step NewestDecided(const JobEntry& job) {
  Step newest = NewestOnRecord(job);
  for (const auto& [directory, checkpoint] : job.gang->writing) {
    if (checkpoint.state == CheckpointState::kComplete) newest = std::max(newest, checkpoint.step);
  }
  return newest;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The directory with the lowest evaluation loss among the committed ones for which `counts` is
// true; the newest of equal ones. Empty: none was evaluated.
template <typename Counts>
std::string BestOf(const std::vector<CheckpointRecord>& checkpoints, const Counts& counts) {
  const CheckpointRecord* best = nullptr;
  for (auto each = checkpoints.rbegin(); each != checkpoints.rend(); ++each) {
    if (each->state != CheckpointState::kCommitted || !each->evaluated || !counts(*each)) continue;
    if (best == nullptr || each->eval_loss < best->eval_loss) best = &*each;
  }
  return best != nullptr ? best->directory : std::string();
}

// What train.eval.keep_best keeps: the best checkpoint, and until that is verified the best
// verified one.
std::vector<std::string> BestToKeep(const JobEntry& job) {
  if (!job.spec.train || !job.spec.train->keeps_best()) return {};
  const auto whole = [](const CheckpointRecord& each) { return Usable(each) && Verified(each); };
  return {BestOf(job.checkpoints, Usable), BestOf(job.checkpoints, whole)};
}

// How many usable checkpoints are newer than the newest verified one.
int Unread(const JobEntry& job) {
  int unread = 0;
  for (auto each = job.checkpoints.rbegin(); each != job.checkpoints.rend(); ++each) {
    if (!Usable(*each)) continue;
    if (Verified(*each)) break;
    ++unread;
  }
  return unread;
}

// Whether one more would be too many to have on disk: reading takes longer than two intervals. A
// checkpoint that is saved for a stop is never delayed, because no other follows it.
bool TooManyUnread(const JobEntry& job) {
  const Running* running = In<Running>(*job.gang);
  const bool at_work = running != nullptr && !running->stop;
  const bool reading = !job.verification->directory.empty() || ManifestPending(job);
  return at_work && reading && Unread(job) >= kMaxUnread;
}

// Removes from disk what was never committed and what a newer checkpoint makes obsolete.
std::vector<std::string> ToRemove(const JobEntry& job) {
  std::vector<std::string> directories;
  bool newer = false;  // one is verified
  for (auto each = job.checkpoints.rbegin(); each != job.checkpoints.rend(); ++each) {
    newer = newer || (Usable(*each) && Verified(*each));
    if (each->state == CheckpointState::kPruning && (newer || each->committed_unix_ms == 0))
      directories.push_back(each->directory);
  }
  return directories;
}

void SendCommitted(Transaction& tx, JobEntry& job, const CheckpointRecord& checkpoint) {
  if (job.attempts.empty()) return;
  const NodeName& node = job.attempt().nodes.front();
  job.commit_sent[checkpoint.directory] = {node, job.record.generation};
  tx.Send(node, CheckpointCommitted{.job = job.record.id,
                                    .generation = job.record.generation,
                                    .output_dir = job.record.output_dir,
                                    .checkpoint = InfoOf(checkpoint),
                                    .prune = ToRemove(job),
                                    .account = AccountOf(tx.state, job.record)});
}

// Keeps the checkpoints in the order of their age.
void Insert(JobEntry& job, CheckpointRecord checkpoint) {
  const auto place =
      std::ranges::upper_bound(job.checkpoints, CheckpointAge(checkpoint), {}, CheckpointAge);
  job.checkpoints.insert(place, std::move(checkpoint));
}

void Commit(Transaction& tx, JobEntry& job, CheckpointRecord checkpoint) {
  MoveCheckpoint(checkpoint, CheckpointEvent::kCommit);
  checkpoint.committed_unix_ms = tx.now.unix_ms;
  std::uint64_t bytes = 0;
  for (const ShardInfo& shard : checkpoint.shards) bytes += shard.bytes;
  tx.Put(checkpoint);
  tx.RecordEvent(job, {"checkpoint_committed", Severity::kInfo,
                       "checkpoint of step " + std::to_string(checkpoint.step) + " committed (" +
                           BytesText(bytes) + " in " + std::to_string(checkpoint.shards.size()) +
                           (checkpoint.shards.size() == 1 ? " shard)" : " shards)")});
  // Reports of its steps may have come to no coordinator.
  if (!job.attempts.empty() && checkpoint.generation == job.attempt().generation)
    job.record.step = std::max(job.record.step, checkpoint.step);
  const std::string directory = checkpoint.directory;
  Insert(job, std::move(checkpoint));
  UpdateCommittedStep(job);
  if (std::exchange(job.checkpoints_fail, false)) {
    if (job.record.state == JobState::kRunning) job.record.reason.clear();
    tx.RecordEvent(job, {"checkpoints_work", Severity::kInfo, "checkpoints can be written again"});
  }
  tx.MarkAttempt(job);
  SendCommitted(tx, job, *FindCheckpoint(job, directory));
}

// Sends the newest commit again, if directories are to be removed: the order carries their names.
void SendPruned(Transaction& tx, JobEntry& job) {
  if (ToRemove(job).empty()) return;
  const auto newest = std::find_if(job.checkpoints.rbegin(), job.checkpoints.rend(), Usable);
  if (newest != job.checkpoints.rend()) SendCommitted(tx, job, *newest);
}

}  // namespace

void RegisterOutput(Transaction& tx, const JobRecord& job) {
  OutputOwner& owner = tx.state.output_owners[job.output_dir];
  if (job.submit_order >= owner.submit_order) owner = {job.submit_order, job.id};
}

bool OwnsOutput(const Transaction& tx, const JobEntry& job) {
  if (job.archived) return false;
  const auto owner = tx.state.output_owners.find(job.record.output_dir);
  return owner == tx.state.output_owners.end() || owner->second.job == job.record.id;
}

void OnShardWritten(Transaction& tx, JobEntry& job, int rank, const ShardWritten& written) {
  if (!IsPlainName(written.directory) || written.shard.rank != rank ||
      written.shard.file != ShardFileName(rank)) {
    tx.out.observations.push_back(StaleMessageObserved{});
    return;
  }
  if (FindCheckpoint(job, written.directory) != nullptr) return;  // decided: a replay
  // Also ignores a checkpoint older than the gang's newest: it may be removed from disk and
  // forgotten.
  if (written.step <= NewestDecided(job)) return;
  auto& writing = job.gang->writing;
  const bool full = !writing.contains(written.directory) && writing.size() >= kMaxWriting;
  if (full && !CommitComplete(tx, job)) {
    // Shards of some rank never arrived, for example because a disk was full. Later checkpoints may
    // be whole.
    Step oldest = writing.begin()->second.step;
    for (const auto& [name, other] : writing) oldest = std::min(oldest, other.step);
    DiscardUnfinished(tx, job, oldest + 1);
  }
  CheckpointRecord& checkpoint = writing[written.directory];
  if (checkpoint.shards.empty()) {
    job.gang->writing_since[written.directory] = tx.now.mono;
    checkpoint.job = job.record.id;
    checkpoint.step = written.step;
    checkpoint.generation = job.attempt().generation;
    checkpoint.directory = written.directory;
    checkpoint.world_size = WorldSize(job);
    checkpoint.evaluated = written.eval_loss.has_value();
    checkpoint.eval_loss = written.eval_loss.value_or(0);
  }
  if (checkpoint.step != written.step) return;
  const auto place =
      std::lower_bound(checkpoint.shards.begin(), checkpoint.shards.end(), rank,
                       [](const ShardInfo& shard, int wanted) { return shard.rank < wanted; });
  if (place != checkpoint.shards.end() && place->rank == rank) return;
  checkpoint.shards.insert(place, written.shard);
  if (static_cast<int>(checkpoint.shards.size()) < WorldSize(job)) return;
  MoveCheckpoint(checkpoint, CheckpointEvent::kAllShards);
  if (const auto seconds = job.checkpoint_clock.Committed(checkpoint.step, tx.now.mono)) {
    // A slower checkpoint counts at once, faster ones gradually: plans that use this figure must
    // not come too late.
    double& known = job.record.checkpoint_seconds;
    known = std::max(*seconds, 0.7 * known + 0.3 * *seconds);
  }
  // Ranks write one checkpoint after the other: what lacks a shard by now will never be whole.
  DiscardUnfinished(tx, job, checkpoint.step);
  if (!CommitUnlessTooMany(tx, job)) SendPruned(tx, job);
}

void OnCheckpointFailed(Transaction& tx, JobEntry& job, int rank, const CheckpointFailed& failed) {
  const bool skipped = failed.kind == CheckpointTrouble::kSlowDisk;
  const std::string text = "checkpoint of step " + std::to_string(failed.step) +
                           (skipped ? " skipped" : " failed") + " on rank " + std::to_string(rank) +
                           ": " + failed.reason;
  // An attempt keeps few notes; with many failures it drops the oldest ones.
  const auto [newest, is_first] = job.gang->failed_saves.emplace(rank, failed.step);
  if (!is_first &&
      failed.step <= std::exchange(newest->second, std::max(newest->second, failed.step))) {
    return;
  }
  if (!tx.Note(job, text)) return;
  tx.RecordEvent(job,
                 {skipped ? "checkpoint_skipped" : "checkpoint_failed", Severity::kWarning, text});
  tx.out.observations.push_back(CheckpointFailureObserved{failed.kind});
  job.checkpoints_fail = true;
  if (job.record.state != JobState::kRunning) return;
  job.record.reason = std::string("training goes on, but checkpoints ") +
                      (skipped ? "are skipped: " : "fail: ") +
                      CutText(failed.reason, kMaxReasonBytes);
  tx.Mark(job);
}

void RefuseCheckpoint(Transaction& tx, JobEntry& job, const RejectedCheckpoint& rejected) {
  CheckpointRecord* checkpoint = FindCheckpoint(job, rejected.directory);
  if (checkpoint != nullptr && !checkpoint->refused.empty()) return;  // every rank reports it
  // It was offered while its removal was under way and not confirmed.
  if (checkpoint != nullptr && checkpoint->state == CheckpointState::kPruning) return;
  const std::string reason = CutText(rejected.reason, kMaxReasonBytes);
  const std::string text = "checkpoint " + rejected.directory + " refused: " + reason;
  if (checkpoint != nullptr) {
    checkpoint->refused = reason;
    tx.Put(*checkpoint);
    UpdateCommittedStep(job);
  }
  if (tx.Note(job, text)) tx.RecordEvent(job, {"checkpoint_refused", Severity::kWarning, text});
}

bool CommitComplete(Transaction& tx, JobEntry& job) {
  auto& writing = job.gang->writing;
  const auto found = std::find_if(writing.begin(), writing.end(), [](const auto& entry) {
    return entry.second.state == CheckpointState::kComplete;
  });
  if (found == writing.end()) return false;
  CheckpointRecord complete = std::move(found->second);
  writing.erase(found);
  auto& since = job.gang->writing_since;
  tx.out.observations.push_back(
      CheckpointCommittedObserved{ToSeconds(tx.now.mono - since.at(complete.directory))});
  std::erase_if(since, [&](const auto& entry) { return !writing.contains(entry.first); });
  Commit(tx, job, std::move(complete));
  return true;
}

// A checkpoint that has all shards waits only while two others are still to be verified. When the
// gang stops or ends, it is delayed no longer, and its steps are not lost.
bool CommitUnlessTooMany(Transaction& tx, JobEntry& job) {
  return job.gang && !TooManyUnread(job) && CommitComplete(tx, job);
}

// Removes what lies on disk with a step below `before` and was not committed: checkpoints that will
// never have all shards, and those that waited so long that a newer one is complete.
void DiscardUnfinished(Transaction& tx, JobEntry& job, Step before) {
  auto& writing = job.gang->writing;
  for (auto& [directory, checkpoint] : writing) {
    if (checkpoint.step >= before) continue;
    if (checkpoint.state == CheckpointState::kComplete) {
      tx.RecordEvent(job, {"checkpoint_skipped", Severity::kWarning,
                           "checkpoint of step " + std::to_string(checkpoint.step) +
                               " skipped: those before it are still being read again"});
    }
    MoveCheckpoint(checkpoint, CheckpointEvent::kPrune);
    tx.Put(checkpoint);
    Insert(job, std::move(checkpoint));
  }
  std::erase_if(writing, [before](const auto& entry) { return entry.second.step < before; });
}

// Marks what the newest verified checkpoint makes obsolete. It and older ones are kept up to
// `keep`, verified ones before others, and so is the best one. Newer ones are not touched.
void PruneOld(Transaction& tx, JobEntry& job) {
  const bool succeeded = job.record.state == JobState::kSucceeded;
  if ((job.over() && !succeeded) || !OwnsOutput(tx, job)) return;
  const int keep = std::max(job.spec.train ? job.spec.train->checkpoint.keep : 1, 1);
  const std::vector<std::string> best = BestToKeep(job);
  const auto verified = static_cast<int>(
      std::count_if(job.checkpoints.begin(), job.checkpoints.end(),
                    [](const CheckpointRecord& each) { return Usable(each) && Verified(each); }));
  int room = std::max(keep - verified, 0);  // for those that are not verified
  int kept = 0;
  for (auto checkpoint = job.checkpoints.rbegin(); checkpoint != job.checkpoints.rend();
       ++checkpoint) {
    if (checkpoint->state != CheckpointState::kCommitted) continue;
    const bool usable = checkpoint->refused.empty();
    const bool whole = usable && Verified(*checkpoint);
    if (kept == 0 && !whole) continue;  // no newer one is verified
    if (whole && kept < keep) {
      ++kept;
      continue;
    }
    if (usable && !whole && room > 0) {
      --room;
      continue;
    }
    if (Contains(best, checkpoint->directory)) continue;
    MoveCheckpoint(*checkpoint, CheckpointEvent::kPrune);
    tx.Put(*checkpoint);
  }
  SendPruned(tx, job);
}

void ForgetPruned(Transaction& tx, JobEntry& job, const std::string& directory) {
  const CheckpointRecord* checkpoint = FindCheckpoint(job, directory);
  if (checkpoint == nullptr || checkpoint->state != CheckpointState::kPruning) return;
  // A worker repeats what its ranks reported to a coordinator that has restarted, including
  // checkpoints that are off the disk by now. The newest decided record of a live gang is what
  // refuses those.
  if (job.gang && checkpoint->generation == job.attempt().generation &&
      checkpoint->step == NewestOnRecord(job)) {
    return;
  }
  tx.Delete(*checkpoint);
  std::erase_if(job.checkpoints,
                [&](const CheckpointRecord& each) { return each.directory == directory; });
  tx.Changed(job);
}

void ResendCommitted(Transaction& tx, JobEntry& job, const NodeName& node) {
  if (job.attempts.empty() || job.attempt().nodes.front() != node) return;
  if (!OwnsOutput(tx, job)) return;
  bool sent = false;
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    if (checkpoint.state != CheckpointState::kCommitted || checkpoint.manifest_written) continue;
    SendCommitted(tx, job, checkpoint);
    sent = true;
  }
  if (!sent) SendPruned(tx, job);
}

std::vector<CheckpointRecord> ResumePoints(const JobEntry& job) {
  std::vector<CheckpointRecord> points;
  for (auto checkpoint = job.checkpoints.rbegin(); checkpoint != job.checkpoints.rend();
       ++checkpoint) {
    if (Usable(*checkpoint)) points.push_back(*checkpoint);
  }
  // The trainer checks them again, and reports an error if none is good: without any offer it would
  // start from the beginning.
  if (points.empty()) {
    std::copy_if(job.checkpoints.rbegin(), job.checkpoints.rend(), std::back_inserter(points),
                 [](const CheckpointRecord& checkpoint) {
                   return checkpoint.state == CheckpointState::kCommitted;
                 });
  }
  return points;
}

}  // namespace muster::control
