// Checkpoints: shards gathered, committed under the generation, announced, pruned.
//
// What is not committed does not exist. Every shard has passed Fence, which compares its generation
// with the job's current one; as nothing else runs between that and the commit, this is the
// compare-and-set that keeps a stale gang from publishing.

#include <algorithm>
#include <iterator>
#include <tuple>

#include "common/base/text.h"
#include "common/checkpoint_format/shard_name.h"
#include "coordinator/control/core.h"

namespace muster {
namespace {

// Of one attempt at the same time; the trainer has one or two.
constexpr std::size_t kMaxWriting = 16;

auto Age(const CheckpointRecord& checkpoint) {
  return std::tuple(checkpoint.step, checkpoint.generation);
}

CheckpointRecord* Find(JobEntry& job, const std::string& directory) {
  for (CheckpointRecord& checkpoint : job.checkpoints) {
    if (checkpoint.directory == directory) return &checkpoint;
  }
  return nullptr;
}

// A directory is a plain name below <output_dir>/checkpoints, for it will be removed one day.
bool IsPlainName(const std::string& directory) {
  return !directory.empty() && directory.size() <= 255 &&
         directory.find('/') == std::string::npos && directory != "." && directory != "..";
}

// The newest step that this generation has committed; -1: none.
Step NewestCommitted(const JobEntry& job, Generation generation) {
  Step newest = -1;
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    const bool committed = checkpoint.committed_unix_ms != 0;
    if (committed && checkpoint.generation == generation)
      newest = std::max(newest, checkpoint.step);
  }
  return newest;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool Verified(const CheckpointRecord& checkpoint) { return VerifiedUnixMs(checkpoint) != 0; }

// The directory of the lowest evaluation loss among the committed ones that `counts` is true of, of
// equal ones the newest; empty: none was evaluated.
template <typename Counts>
std::string BestOf(const std::vector<CheckpointRecord>& checkpoints, const Counts& counts) {
  const CheckpointRecord* best = nullptr;
  for (auto each = checkpoints.rbegin(); each != checkpoints.rend(); ++each) {
    if (each->state != CheckpointState::kCommitted || !each->evaluated || !counts(*each)) continue;
    if (best == nullptr || each->eval_loss < best->eval_loss) best = &*each;
  }
  return best != nullptr ? best->directory : std::string();
}

// What train.eval.keep_best keeps: the best one, and as long as nobody has read that again the best
// one that is known to be whole.
std::vector<std::string> BestToKeep(const JobEntry& job, const std::string& committing) {
  if (!job.spec.train || !job.spec.train->keeps_best()) return {};
  const auto usable = [](const CheckpointRecord& each) { return each.refused.empty(); };
  const auto whole = [&](const CheckpointRecord& each) {
    return usable(each) && (Verified(each) || each.directory == committing);
  };
  return {BestOf(job.checkpoints, usable), BestOf(job.checkpoints, whole)};
}

// Of a closed set, by how the trainer begins its reason (docs/trainer-protocol.md).
std::string_view KindOfTrouble(std::string_view reason) {
  static constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"disk full: ", "disk_full"},
      {"read-only: ", "read_only"},
      {"I/O error: ", "io_error"},
      {"slow disk: ", "slow_disk"}};
  for (const auto& [prefix, kind] : kKinds)
    if (reason.starts_with(prefix)) return kind;
  return "other";
}

}  // namespace

void ControllerCore::OnShardWritten(JobEntry& job, int rank, const ShardWritten& written) {
  if (!IsPlainName(written.directory) || written.shard.rank != rank ||
      written.shard.file != ShardFileName(rank)) {
    out_.observations.push_back(StaleMessageObserved{});
    return;
  }
  if (Find(job, written.directory) != nullptr) return;  // decided: a replay
  // So is an older one than the gang's newest: it may be off the disk by now, and known no more.
  if (written.step <= NewestCommitted(job, job.attempt().generation)) return;
  auto& writing = job.gang->writing;
  if (!writing.contains(written.directory) && writing.size() >= kMaxWriting) {
    // Shards of some rank never came, say for a full disk. The later ones may be whole.
    Step oldest = writing.begin()->second.step;
    for (const auto& [name, other] : writing) oldest = std::min(oldest, other.step);
    DiscardUnfinished(job, oldest + 1);
  }
  CheckpointRecord& checkpoint = writing[written.directory];
  if (checkpoint.shards.empty()) {
    job.gang->writing_since[written.directory] = now_.mono;
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
  CheckpointRecord complete = std::move(checkpoint);
  writing.erase(written.directory);
  auto& since = job.gang->writing_since;
  out_.observations.push_back(
      CheckpointCommittedObserved{ToSeconds(now_.mono - since.at(written.directory))});
  std::erase_if(since, [&](const auto& entry) { return !writing.contains(entry.first); });
  MoveCheckpoint(complete, CheckpointEvent::kAllShards);
  Commit(job, std::move(complete));
}

void ControllerCore::Commit(JobEntry& job, CheckpointRecord checkpoint) {
  // Ranks write one checkpoint after the other: what lacks a shard by now will never be whole.
  DiscardUnfinished(job, checkpoint.step);
  MoveCheckpoint(checkpoint, CheckpointEvent::kCommit);
  checkpoint.committed_unix_ms = now_.unix_ms;
  if (const auto seconds = job.checkpoint_clock.Committed(checkpoint.step, now_.mono)) {
    // A slower one counts at once, faster ones little by little: who plans by this is to be in
    // time.
    double& known = job.record.checkpoint_seconds;
    known = std::max(*seconds, 0.7 * known + 0.3 * *seconds);
  }
  std::uint64_t bytes = 0;
  for (const ShardInfo& shard : checkpoint.shards) bytes += shard.bytes;
  Put(checkpoint);
  RecordEvent(job, {"checkpoint_committed", Severity::kInfo,
                    "checkpoint of step " + std::to_string(checkpoint.step) + " committed (" +
                        BytesText(bytes) + " in " + std::to_string(checkpoint.shards.size()) +
                        (checkpoint.shards.size() == 1 ? " shard)" : " shards)")});
  const std::string directory = checkpoint.directory;
  const auto place = std::upper_bound(
      job.checkpoints.begin(), job.checkpoints.end(), checkpoint,
      [](const CheckpointRecord& a, const CheckpointRecord& b) { return Age(a) < Age(b); });
  job.checkpoints.insert(place, std::move(checkpoint));
  UpdateCommittedStep(job);
  if (std::exchange(job.checkpoints_fail, false)) {
    if (job.record.state == JobState::kRunning) job.record.reason.clear();
    RecordEvent(job, {"checkpoints_work", Severity::kInfo, "checkpoints can be written again"});
  }
  MarkAttempt(job);
  PruneOld(job, directory);
  SendCommitted(job, *Find(job, directory));
}

// Marks what the newest `keep` and the best make needless: those that were read again and found
// whole, and the one that is being committed. The marked ones go from disk only after that one was
// read again and its commit record written: the worker does all three, in this order, for one
// CheckpointCommitted, and KeepPruned takes the marks back when it could not.
void ControllerCore::PruneOld(JobEntry& job, const std::string& committing) {
  const int keep = std::max(job.spec.train ? job.spec.train->checkpoint.keep : 1, 1);
  const std::vector<std::string> best = BestToKeep(job, committing);
  int kept = 0;
  for (auto checkpoint = job.checkpoints.rbegin(); checkpoint != job.checkpoints.rend();
       ++checkpoint) {
    if (checkpoint->state != CheckpointState::kCommitted) continue;
    const bool refused = !checkpoint->refused.empty();
    if (!refused && kept < keep) {
      // One whose reading has failed or is not over stays too, but makes no other needless.
      if (Verified(*checkpoint) || checkpoint->directory == committing) ++kept;
      continue;
    }
    // A refused one newer than every good one stays until there is a better: it may be all there
    // is.
    if (kept == 0 || Contains(best, checkpoint->directory)) continue;
    MoveCheckpoint(*checkpoint, CheckpointEvent::kPrune);
    Put(*checkpoint);
  }
}

// Nothing was removed for `committing`: the older ones are what there is to resume from. Three
// kinds stay marked: one that was never whole, one without a commit record, which a launch may have
// removed as abandoned, and one that another commit has asked to remove and that may be gone by
// now.
void ControllerCore::KeepPruned(JobEntry& job, const std::string& committing) {
  for (const std::string& directory : job.prune_sent[committing].directories) {
    CheckpointRecord* checkpoint = Find(job, directory);
    if (checkpoint == nullptr || !checkpoint->manifest_written) continue;
    const bool asked_elsewhere =
        std::any_of(job.prune_sent.begin(), job.prune_sent.end(), [&](const auto& sent) {
          return sent.first != committing && Contains(sent.second.directories, directory);
        });
    if (asked_elsewhere) continue;
    MoveCheckpoint(*checkpoint, CheckpointEvent::kKeep);
    Put(*checkpoint);
  }
}

void ControllerCore::SendCommitted(JobEntry& job, const CheckpointRecord& checkpoint) {
  if (job.attempts.empty()) return;
  CheckpointCommitted message{.job = job.record.id,
                              .generation = job.record.generation,
                              .output_dir = job.record.output_dir,
                              .checkpoint = InfoOf(checkpoint)};
  for (const CheckpointRecord& other : job.checkpoints) {
    if (other.state == CheckpointState::kPruning) message.prune.push_back(other.directory);
  }
  const NodeName& node = job.attempt().nodes.front();
  job.prune_sent[checkpoint.directory] = {node, message.prune};
  Send(node, std::move(message));
}

void ControllerCore::ResendCommitted(JobEntry& job, const NodeName& node) {
  if (job.attempts.empty() || job.attempt().nodes.front() != node) return;
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    if (checkpoint.state == CheckpointState::kCommitted && !checkpoint.manifest_written) {
      SendCommitted(job, checkpoint);
    }
  }
}

void ControllerCore::Handle(const NodeName& node, const ManifestWritten& message) {
  const auto found = jobs_.find(message.job);
  if (found == jobs_.end()) return;
  JobEntry& job = found->second;
  CheckpointRecord* checkpoint = Find(job, message.directory);
  if (checkpoint == nullptr || checkpoint->manifest_written) return;
  // A node that was asked earlier cannot; another one may be removing the older ones by now.
  const auto sent = job.prune_sent.find(message.directory);
  if (!message.error.empty() && sent != job.prune_sent.end() && sent->second.node != node) return;
  if (message.error.empty()) {
    checkpoint->manifest_written = true;
    checkpoint->verified_unix_ms = now_.unix_ms;
    Put(*checkpoint);
    for (const std::string& directory : job.prune_sent[message.directory].directories) {
      std::erase_if(job.checkpoints,
                    [&](const CheckpointRecord& c) { return c.directory == directory; });
      other_operations_.push_back(DeleteCheckpoint{job.record.id, directory});
    }
    Changed(job);
  } else {
    job.manifest_failed.insert(message.directory);
    KeepPruned(job, message.directory);
    RecordEvent(job, {"checkpoint_failed", Severity::kWarning,
                      "checkpoint " + message.directory +
                          " is not safe on disk, older ones are kept: " + message.error});
  }
  job.prune_sent.erase(message.directory);
  scrubs_.Plan(job);
  if (job.gang) MaybeEndAttempt(job);
}

void ControllerCore::OnCheckpointFailed(JobEntry& job, int rank, const CheckpointFailed& failed) {
  const std::string text = "checkpoint of step " + std::to_string(failed.step) +
                           " failed on rank " + std::to_string(rank) + ": " + failed.reason;
  // The notes of an attempt are few: of many failures the oldest are forgotten there.
  const auto [newest, is_first] = job.gang->failed_saves.emplace(rank, failed.step);
  if (!is_first &&
      failed.step <= std::exchange(newest->second, std::max(newest->second, failed.step))) {
    return;
  }
  if (!Note(job, text)) return;
  RecordEvent(job, {"checkpoint_failed", Severity::kWarning, text});
  out_.observations.push_back(CheckpointFailureObserved{KindOfTrouble(failed.reason)});
  job.checkpoints_fail = true;
  if (job.record.state != JobState::kRunning) return;
  job.record.reason =
      "training goes on, but checkpoints fail: " + CutText(failed.reason, kMaxReasonBytes);
  Mark(job);
}

void ControllerCore::RefuseCheckpoint(JobEntry& job, int rank, const RejectedCheckpoint& rejected) {
  CheckpointRecord* checkpoint = Find(job, rejected.directory);
  if (checkpoint != nullptr && !checkpoint->refused.empty()) return;  // every rank says it
  // Offered while its removal was under way, which nobody was sure of.
  if (checkpoint != nullptr && checkpoint->state == CheckpointState::kPruning) return;
  std::string reason = CutText(rejected.reason, kMaxReasonBytes);
  if (!reason.starts_with("rank ")) reason = "rank " + std::to_string(rank) + ": " + reason;
  const std::string text = "checkpoint " + rejected.directory + " refused: " + reason;
  if (checkpoint != nullptr) {
    checkpoint->refused = reason;
    Put(*checkpoint);
    UpdateCommittedStep(job);
  }
  if (Note(job, text)) RecordEvent(job, {"checkpoint_refused", Severity::kWarning, text});
}

// Shards of checkpoints that will not be complete lie about on disk: those of steps below `before`
// are pruned with the next commit.
void ControllerCore::DiscardUnfinished(JobEntry& job, Step before) {
  auto& writing = job.gang->writing;
  for (auto& [directory, checkpoint] : writing) {
    if (checkpoint.step >= before) continue;
    MoveCheckpoint(checkpoint, CheckpointEvent::kPrune);
    Put(checkpoint);
    job.checkpoints.insert(job.checkpoints.begin(), std::move(checkpoint));
  }
  std::erase_if(writing, [before](const auto& entry) { return entry.second.step < before; });
}

std::vector<CheckpointRecord> ResumePoints(const JobEntry& job) {
  std::vector<CheckpointRecord> points;
  for (auto checkpoint = job.checkpoints.rbegin(); checkpoint != job.checkpoints.rend();
       ++checkpoint) {
    if (Usable(*checkpoint)) points.push_back(*checkpoint);
  }
  // The trainer looks at them again, and says that none is good: with none at all it would begin
  // anew.
  if (points.empty()) {
    std::copy_if(job.checkpoints.rbegin(), job.checkpoints.rend(), std::back_inserter(points),
                 [](const CheckpointRecord& checkpoint) {
                   return checkpoint.state == CheckpointState::kCommitted;
                 });
  }
  if (std::any_of(points.begin(), points.end(), &Verified)) return points;
  // What is to go once a newer one was read again may still be there, and may be all that is whole.
  const auto old = std::find_if(job.checkpoints.rbegin(), job.checkpoints.rend(),
                                [](const CheckpointRecord& checkpoint) {
                                  return checkpoint.state == CheckpointState::kPruning &&
                                         checkpoint.refused.empty() && Verified(checkpoint);
                                });
  if (old != job.checkpoints.rend()) points.push_back(*old);
  return points;
}

}  // namespace muster
