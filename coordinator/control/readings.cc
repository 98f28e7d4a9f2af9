#include "coordinator/control/readings.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/base/text.h"
#include "coordinator/control/checkpoints.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/words.h"

namespace muster::control {
namespace {

using Parts = std::map<NodeName, std::vector<ShardInfo>>;

// How long until the next check whether a node is free, or whether the job's state allows a
// reading.
constexpr Duration kLiveRetry = std::chrono::seconds(2);
constexpr Duration kEndedRetry = std::chrono::seconds(30);
// How long until a live job's checkpoint that no node could read is tried again: a mount returns
// soon.
constexpr Duration kTroubleRetry = std::chrono::minutes(10);
// Limit of unrequested scrub orders over all jobs: jobs usually share one file server.
constexpr std::size_t kMaxAtOnce = 4;
// Limit of nodes that never ran the job and are asked for one checkpoint.
constexpr std::size_t kMaxNonMembers = 3;
// A worker reads more slowly than its limit if training needs the disk, and not at all while a
// checkpoint is being written.
constexpr Duration kTimeout = std::chrono::minutes(10);
constexpr double kSlowness = 8;
constexpr std::uint64_t kScrubBytesPerSecond = 100'000'000;  // at most, on a node

Duration RetryOf(const JobEntry& job) { return job.over() ? kEndedRetry : kLiveRetry; }

bool OfNewestAttempt(const JobEntry& job, const NodeName& node) {
  if (job.attempts.empty()) return false;
  const std::vector<NodeName>& nodes = job.attempts.back().nodes;
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

// A checkpoint that is being committed is read by its verification.
bool IsCommitted(const JobEntry& job, const CheckpointRecord& checkpoint) {
  const bool pending = !job.over() && !checkpoint.manifest_written &&
                       !job.manifest_failed.contains(checkpoint.directory);
  return Usable(checkpoint) && !pending;
}

Duration TimeoutFor(const std::vector<ShardInfo>& shards, std::uint64_t bytes_per_second) {
  double bytes = 0;
  for (const ShardInfo& shard : shards) bytes += static_cast<double>(shard.bytes);
  const auto speed = static_cast<double>(std::max<std::uint64_t>(1, bytes_per_second));
  return kTimeout + FromSeconds(kSlowness * bytes / speed);
}

std::string Sentence(const CheckpointScrubbed& answer) {
  const bool named = answer.file.empty() || answer.detail.find(answer.file) != std::string::npos;
  return CutText(named ? answer.detail : answer.file + ": " + answer.detail, kMaxReasonBytes);
}

void ScrubNext(Transaction& tx, JobEntry& job);

// The job that is read, in memory or recalled from the archive.
JobEntry& JobOf(Transaction& tx, const JobId& id) {
  const auto recalled = tx.state.recalls.jobs.find(id);
  return recalled == tx.state.recalls.jobs.end() ? tx.job(id) : recalled->second;
}

void SetScrubTime(Transaction& tx, JobEntry& job, std::optional<TimePoint> at) {
  tx.state.readings.scrub_times.Set(job.record.id, at);
}

// A live job may need any of its checkpoints at any moment. Successors start from those of a
// succeeded job, which nothing else reads. Checkpoints of a failed or cancelled job are the user's
// to keep or remove, and a directory that a newer job writes to belongs to that job.
bool IsScrubbed(const Transaction& tx, const JobEntry& job) {
  if (tx.options.scrub_interval <= Duration::zero()) return false;
  if (!job.over()) return true;
  return job.record.state == JobState::kSucceeded && OwnsOutput(tx, job);
}

// A job's scrubs wait while one of its checkpoints is verified, except those that a client waits
// for.
bool LeftToVerification(const JobEntry& job) {
  return !job.verification->directory.empty() && job.scrub->requests.empty();
}

// A checkpoint that was never read waits while another one is verified, which may make it obsolete.
bool CanBeRead(const JobEntry& job, const CheckpointRecord& checkpoint) {
  const bool left_to_verification = !Verified(checkpoint) && !job.verification->directory.empty();
  return IsCommitted(job, checkpoint) && !left_to_verification;
}

std::optional<TimePoint> ScrubDue(const Transaction& tx, const JobEntry& job,
                                  const CheckpointRecord& checkpoint) {
  if (!CanBeRead(job, checkpoint)) return std::nullopt;
  if (job.scrub->wanted.contains(checkpoint.directory)) return tx.now.mono;
  if (!IsScrubbed(tx, job)) return std::nullopt;
  const TimePoint now = tx.now.mono;
  const auto read = job.scrub->read_at.find(checkpoint.directory);
  const bool known = read != job.scrub->read_at.end();
  const TimePoint due = known ? std::max(now, read->second + tx.options.scrub_interval) : now;
  const auto skip = job.scrub->skip.find(checkpoint.directory);
  return skip == job.scrub->skip.end() ? due : std::max(due, skip->second);
}

// The age of what an earlier coordinator read comes from the wall clock, which may have been set
// since. A time in the future begins the interval again, and no age exceeds an interval.
void NoteReadTimes(Transaction& tx, JobEntry& job) {
  if (job.checkpoints.empty() && job.scrub->read_at.empty()) return;
  std::map<std::string, TimePoint> read_at;
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    if (!Verified(checkpoint)) continue;
    const Duration age = std::chrono::milliseconds(tx.now.unix_ms - checkpoint.verified_unix_ms);
    const auto known = job.scrub->read_at.find(checkpoint.directory);
    read_at[checkpoint.directory] =
        known != job.scrub->read_at.end()
            ? known->second
            : tx.now.mono - std::clamp(age, Duration::zero(), tx.options.scrub_interval);
  }
  job.scrub.Mutable().read_at = std::move(read_at);
}

bool IsConnected(const Transaction& tx, const NodeName& name) {
  const NodeEntry* node = tx.FindNode(name);
  return node != nullptr && node->session != 0 && !node->suspect;
}

// Which node reads which shards: each node those of its own ranks, and another node of the attempt
// those of a node that is not connected. Empty: no node of the attempt can read.
Parts PartsOf(const Transaction& tx, const JobEntry& job, const CheckpointRecord& checkpoint) {
  const auto attempt = std::find_if(job.attempts.rbegin(), job.attempts.rend(),
                                    [&checkpoint](const AttemptRecord& each) {
                                      return each.generation == checkpoint.generation;
                                    });
  if (attempt == job.attempts.rend() || attempt->ranks.size() != checkpoint.shards.size())
    return {};
  const auto other = std::find_if(attempt->nodes.begin(), attempt->nodes.end(),
                                  [&tx](const NodeName& name) { return IsConnected(tx, name); });
  if (other == attempt->nodes.end()) return {};
  Parts parts;
  for (std::size_t rank = 0; rank < attempt->ranks.size(); ++rank) {
    const NodeName& own = attempt->ranks[rank].node;
    parts[IsConnected(tx, own) ? own : *other].push_back(checkpoint.shards[rank]);
  }
  return parts;
}

void ReleaseOrder(Transaction& tx, JobEntry& job) {
  tx.state.readings.scrubbing.erase(job.scrub->node);
  job.scrub.Mutable().id = 0;
  SetScrubTime(tx, job, std::nullopt);
}

void SendParts(Transaction& tx, JobEntry& job, const CheckpointRecord& checkpoint,
               const Parts& parts) {
  Verification& verification = job.verification.Mutable();
  const std::uint64_t limit = tx.options.verify_bytes_per_second;
  const std::uint64_t speed = limit > 0 ? limit : kScrubBytesPerSecond;
  verification.directory = checkpoint.directory;
  verification.give_up_at = tx.now.mono;
  for (const auto& [node, shards] : parts) {
    CheckpointRecord part = checkpoint;
    part.shards = shards;
    verification.orders[++tx.state.readings.newest_order] = node;
    tx.state.readings.verifying[tx.state.readings.newest_order] = job.record.id;
    verification.give_up_at =
        std::max(verification.give_up_at, tx.now.mono + TimeoutFor(shards, speed));
    tx.Send(node, ScrubCheckpoint{.scrub_id = tx.state.readings.newest_order,
                                  .job = job.record.id,
                                  .output_dir = job.record.output_dir,
                                  .checkpoint = InfoOf(part),
                                  .max_bytes_per_second = limit,
                                  .at_once = true,
                                  .account = AccountOf(tx.state, job.record)});
  }
  tx.state.readings.give_up_times.Set(job.record.id, verification.give_up_at);
  if (job.scrub->id == 0 || !job.scrub->requests.empty()) return;
  tx.Send(job.scrub->node, CancelScrub{job.scrub->id});
  ReleaseOrder(tx, job);
}

void StartVerification(Transaction& tx, JobEntry& job) {
  if (!job.verification->directory.empty()) return;
  const CheckpointRecord* checkpoint =
      FindCheckpoint(job, std::exchange(job.verification.Mutable().waiting, {}));
  if (checkpoint == nullptr || !IsCommitted(job, *checkpoint)) return;
  if (job.over() && job.record.state != JobState::kSucceeded) return;
  const Parts parts = PartsOf(tx, job, *checkpoint);
  if (!parts.empty()) SendParts(tx, job, *checkpoint, parts);
}

void Verify(Transaction& tx, JobEntry& job, const CheckpointRecord& checkpoint) {
  job.verification.Mutable().waiting = checkpoint.directory;
  StartVerification(tx, job);
}

void EndVerification(Transaction& tx, JobEntry& job) {
  Verification& verification = job.verification.Mutable();
  tx.state.readings.give_up_times.Set(job.record.id, std::nullopt);
  for (const auto& [id, node] : verification.orders) {
    tx.Send(node, CancelScrub{id});
    tx.state.readings.verifying.erase(id);
  }
  verification.orders.clear();
  verification.directory.clear();
}

// Among those that are due: first what clients wait for, then the one with the oldest reading.
CheckpointRecord* NextToScrub(Transaction& tx, JobEntry& job) {
  CheckpointRecord* next = nullptr;
  const auto order = [&job](const CheckpointRecord& checkpoint) {
    return std::pair(!job.scrub->wanted.contains(checkpoint.directory),
                     checkpoint.verified_unix_ms);
  };
  for (CheckpointRecord& checkpoint : job.checkpoints) {
    const std::optional<TimePoint> due = ScrubDue(tx, job, checkpoint);
    if (!due || *due > tx.now.mono) continue;
    if (next == nullptr || order(checkpoint) < order(*next)) next = &checkpoint;
  }
  return next;
}

std::vector<NodeName> Readers(const Transaction& tx, const JobEntry& job) {
  std::vector<NodeName> readers;
  if (!job.attempts.empty()) {
    for (const NodeName& name : job.attempts.back().nodes) {
      if (IsConnected(tx, name)) readers.push_back(name);
    }
  }
  std::size_t non_members = 0;
  for (const auto& [name, node] : tx.state.nodes) {
    if (!IsConnected(tx, name) || OfNewestAttempt(job, name) || non_members == kMaxNonMembers)
      continue;
    ++non_members;
    readers.push_back(name);
  }
  std::erase_if(readers, [&job](const NodeName& name) { return job.scrub->asked.contains(name); });
  return readers;
}

void SendScrub(Transaction& tx, JobEntry& job, const CheckpointRecord& checkpoint,
               const NodeName& node) {
  job.scrub.Mutable().id = ++tx.state.readings.newest_order;
  job.scrub.Mutable().node = node;
  tx.state.readings.scrubbing[node] = job.record.id;
  SetScrubTime(tx, job, tx.now.mono + TimeoutFor(checkpoint.shards, kScrubBytesPerSecond));
  tx.Send(node, ScrubCheckpoint{.scrub_id = tx.state.readings.newest_order,
                                .job = job.record.id,
                                .output_dir = job.record.output_dir,
                                .checkpoint = InfoOf(checkpoint),
                                .max_bytes_per_second = kScrubBytesPerSecond,
                                .account = AccountOf(tx.state, job.record)});
}

void FoundDamaged(Transaction& tx, JobEntry& job, CheckpointRecord& checkpoint,
                  const std::string& found) {
  Scrub& scrub = job.scrub.Mutable();
  if (scrub.directory == checkpoint.directory) scrub.directory.clear();
  scrub.skip.erase(checkpoint.directory);
  checkpoint.refused = CutText("found damaged on " + found, kMaxReasonBytes);
  tx.Put(checkpoint);
  UpdateCommittedStep(job);
  tx.Mark(job);
  tx.out.observations.push_back(ScrubObserved{ScrubOutcome::kDamaged});
  scrub.wanted.erase(checkpoint.directory);
  scrub.whole.erase(checkpoint.directory);
  tx.RecordEvent(job, {"checkpoint_damaged", Severity::kError,
                       "checkpoint " + checkpoint.directory +
                           " is damaged and is not resumed from: " + checkpoint.refused});
}

// Every node was asked. A file that a node of the gang does not find in the job's own directory is
// gone; other answers do not show damage.
void FoundUnreadable(Transaction& tx, JobEntry& job, const CheckpointRecord& checkpoint) {
  Scrub& scrub = job.scrub.Mutable();
  if (!scrub.missing.empty()) {
    FoundDamaged(tx, job, *FindCheckpoint(job, checkpoint.directory), scrub.missing);
    return ScrubNext(tx, job);
  }
  tx.out.observations.push_back(ScrubObserved{ScrubOutcome::kUnreadable});
  const std::string text =
      "checkpoint " + checkpoint.directory + " cannot be reached: " + scrub.trouble;
  const Duration interval = tx.options.scrub_interval;
  scrub.skip[checkpoint.directory] =
      tx.now.mono + (job.over() ? interval : std::min(interval, kTroubleRetry));
  if (scrub.wanted.erase(checkpoint.directory) > 0) scrub.unverified = text;
  scrub.directory.clear();
  if (job.record.scrub_trouble.empty()) {
    tx.RecordEvent(job, {"checkpoints_unreachable", Severity::kWarning,
                         text + "; it is tried again and does not count as damaged"});
    job.record.scrub_trouble = scrub.trouble;
    tx.Mark(job);
  }
  ScrubNext(tx, job);
}

void AnswerVerifications(Transaction& tx, JobEntry& job, Status status) {
  if (job.scrub->requests.empty() && job.scrub->wanted.empty()) return;
  Scrub& scrub = job.scrub.Mutable();
  CheckpointsVerified verified{.whole = static_cast<int>(scrub.whole.size()), .damaged = {}};
  for (const CheckpointRecord& each : job.checkpoints) {
    if (each.state == CheckpointState::kCommitted && !each.refused.empty())
      verified.damaged.push_back(each.directory);
  }
  for (const RequestId request : scrub.requests) {
    Reply reply{.request = request, .status = status};
    if (status.ok()) reply.body = verified;
    tx.out.replies.push_back(std::move(reply));
    tx.state.readings.requests.erase(request);
  }
  scrub.requests.clear();
  scrub.wanted.clear();
  scrub.whole.clear();
  scrub.unverified.clear();
}

void ScrubNext(Transaction& tx, JobEntry& job) {
  Scrub& scrub = job.scrub.Mutable();
  if (LeftToVerification(job)) return;
  CheckpointRecord* checkpoint = NextToScrub(tx, job);
  if (checkpoint == nullptr) {
    const bool comes =
        !job.verification->directory.empty() &&
        std::any_of(job.checkpoints.begin(), job.checkpoints.end(),
                    [&scrub](const CheckpointRecord& each) {
                      return !Verified(each) && scrub.wanted.contains(each.directory);
                    });
    if (comes) return PlanScrubs(tx, job);
    AnswerVerifications(
        tx, job, scrub.unverified.empty() ? OkStatus() : FailedPrecondition(scrub.unverified));
    return PlanScrubs(tx, job);
  }
  // A scrub waits while a gang starts, because the gang reads checkpoints itself.
  if (job.gang && job.record.state != JobState::kRunning)
    return SetScrubTime(tx, job, tx.now.mono + RetryOf(job));
  if (scrub.directory != checkpoint->directory) {
    scrub.directory = checkpoint->directory;
    scrub.asked.clear();
    scrub.missing.clear();
    scrub.trouble.clear();
  }
  const std::vector<NodeName> readers = Readers(tx, job);
  if (readers.empty() && !scrub.asked.empty()) return FoundUnreadable(tx, job, *checkpoint);
  if (readers.empty())
    AnswerVerifications(tx, job,
                        FailedPrecondition("no connected node can read the checkpoints of job " +
                                           job.record.id.value + "; 'muster nodes' lists them"));
  const bool enough = scrub.requests.empty() && tx.state.readings.scrubbing.size() >= kMaxAtOnce;
  if (enough || readers.empty() || tx.state.readings.scrubbing.contains(readers.front()))
    return SetScrubTime(tx, job, tx.now.mono + RetryOf(job));
  SendScrub(tx, job, *checkpoint, readers.front());
}

void VerificationOver(Transaction& tx, JobEntry& job) {
  // The checkpoint that is committed now is read next, instead of the one that has waited.
  if (CommitUnlessTooMany(tx, job)) job.verification.Mutable().waiting.clear();
  StartVerification(tx, job);
  if (job.scrub->id == 0 && !job.scrub->requests.empty()) {
    ScrubNext(tx, job);
  } else {
    PlanScrubs(tx, job);
  }
  tx.may_end.insert(job.record.id);
}

void FoundWhole(Transaction& tx, JobEntry& job, CheckpointRecord& checkpoint) {
  Scrub& scrub = job.scrub.Mutable();
  if (scrub.directory == checkpoint.directory) scrub.directory.clear();
  const bool is_first = !Verified(checkpoint);
  checkpoint.verified_unix_ms = tx.now.unix_ms;
  scrub.read_at[checkpoint.directory] = tx.now.mono;
  tx.Put(checkpoint);
  if (is_first) PruneOld(tx, job);
  tx.Changed(job);
  tx.out.observations.push_back(ScrubObserved{ScrubOutcome::kWhole});
  if (scrub.wanted.erase(checkpoint.directory) > 0) scrub.whole.insert(checkpoint.directory);
  scrub.skip.erase(checkpoint.directory);
  std::erase_if(scrub.skip, [&job](const auto& entry) {
    const CheckpointRecord* skipped = FindCheckpoint(job, entry.first);
    return skipped == nullptr || !Usable(*skipped);
  });
  const bool more = !scrub.skip.empty() || !scrub.wanted.empty();
  if (more || job.record.scrub_trouble.empty()) return;
  job.record.scrub_trouble.clear();
  tx.Mark(job);
  tx.RecordEvent(job, {"checkpoints_reachable", Severity::kInfo, "checkpoints can be read again"});
}

// An answer of a node that was not asked, or a second one, changes nothing.
void PartAnswered(Transaction& tx, JobEntry& job, const NodeName& node,
                  const CheckpointScrubbed& answer) {
  Verification& verification = job.verification.Mutable();
  const bool asked = verification.orders.at(answer.scrub_id) == node &&
                     answer.job == job.record.id && answer.directory == verification.directory;
  if (!asked) return tx.out.observations.push_back(StaleMessageObserved{});
  verification.orders.erase(answer.scrub_id);
  tx.state.readings.verifying.erase(answer.scrub_id);
  CheckpointRecord* checkpoint = FindCheckpoint(job, verification.directory);
  const bool wanted = checkpoint != nullptr && Usable(*checkpoint);
  const bool whole = answer.outcome == ScrubOutcome::kWhole;
  if (wanted && whole && !verification.orders.empty()) return;
  EndVerification(tx, job);
  if (wanted && whole) FoundWhole(tx, job, *checkpoint);
  if (wanted && answer.outcome == ScrubOutcome::kDamaged)
    FoundDamaged(tx, job, *checkpoint, node.value + ": " + Sentence(answer));
  VerificationOver(tx, job);
}

}  // namespace

std::optional<TimePoint> NextReadingDeadline(const State& state) {
  return Earliest(state.readings.scrub_times.Next(), state.readings.give_up_times.Next());
}

void RunReadings(Transaction& tx) {
  Readings& readings = tx.state.readings;
  while (const std::optional<JobId> id = readings.give_up_times.PopDue(tx.now.mono)) {
    JobEntry& job = JobOf(tx, *id);
    EndVerification(tx, job);
    VerificationOver(tx, job);
  }
  while (const std::optional<JobId> id = readings.scrub_times.PopDue(tx.now.mono)) {
    JobEntry& job = JobOf(tx, *id);
    if (job.scrub->id != 0) {
      tx.Send(job.scrub->node, CancelScrub{job.scrub->id});
      job.scrub.Mutable().asked.insert(job.scrub->node);
      job.scrub.Mutable().trouble = job.scrub->node.value + " did not answer in time";
      ReleaseOrder(tx, job);
    }
    ScrubNext(tx, job);
  }
}

void PlanScrubs(Transaction& tx, JobEntry& job) {
  NoteReadTimes(tx, job);
  if (job.scrub->id != 0) return;  // its answer, or the end of its timeout, comes first
  if (LeftToVerification(job)) return SetScrubTime(tx, job, std::nullopt);
  std::optional<TimePoint> next;
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    const std::optional<TimePoint> due = ScrubDue(tx, job, checkpoint);
    if (due && (!next || *due < *next)) next = due;
  }
  SetScrubTime(tx, job, next);
}

void GiveUpReadingsOf(Transaction& tx, const NodeName& node) {
  std::set<JobId> verified;
  for (const auto& [id, job] : tx.state.readings.verifying) {
    if (JobOf(tx, job).verification->orders.at(id) == node) verified.insert(job);
  }
  for (const JobId& id : verified) {
    JobEntry& job = JobOf(tx, id);
    // The remaining nodes read it, unless a newer one comes first.
    if (job.verification->waiting.empty())
      job.verification.Mutable().waiting = job.verification->directory;
    EndVerification(tx, job);
    VerificationOver(tx, job);
  }
  const auto reading = tx.state.readings.scrubbing.find(node);
  if (reading == tx.state.readings.scrubbing.end()) return;
  JobEntry& job = JobOf(tx, reading->second);
  ReleaseOrder(tx, job);
  SetScrubTime(tx, job, tx.now.mono + RetryOf(job));
}

// An answer counts once, and only if job, generation, node and checkpoint are those of an order
// that is outstanding.
void Handle(Transaction& tx, const NodeName& node, const ManifestWritten& message) {
  JobEntry* found = tx.FindJob(message.job);
  const CommitOrder answered{node, message.generation};
  if (found == nullptr || !found->commit_sent.contains(message.directory) ||
      found->commit_sent.at(message.directory) != answered) {
    tx.out.observations.push_back(StaleMessageObserved{});
    return;
  }
  JobEntry& job = *found;
  job.commit_sent.erase(message.directory);
  for (const std::string& directory : message.pruned) ForgetPruned(tx, job, directory);
  CheckpointRecord* checkpoint = FindCheckpoint(job, message.directory);
  if (checkpoint == nullptr || checkpoint->manifest_written) return;
  if (message.error.empty()) {
    checkpoint->manifest_written = true;
    tx.Put(*checkpoint);
    tx.Changed(job);
    if (Usable(*checkpoint) && !Verified(*checkpoint)) Verify(tx, job, *checkpoint);
  } else {
    job.manifest_failed.insert(message.directory);
    tx.RecordEvent(job, {"checkpoint_failed", Severity::kWarning,
                         "the commit record of checkpoint " + message.directory +
                             " cannot be written, older ones are kept: " + message.error});
  }
  CommitUnlessTooMany(tx, job);
  PlanScrubs(tx, job);
  tx.may_end.insert(job.record.id);
}

void Handle(Transaction& tx, const NodeName& node, const CheckpointScrubbed& answer) {
  if (const auto part = tx.state.readings.verifying.find(answer.scrub_id);
      part != tx.state.readings.verifying.end())
    return PartAnswered(tx, JobOf(tx, part->second), node, answer);
  const auto reading = tx.state.readings.scrubbing.find(node);
  if (reading == tx.state.readings.scrubbing.end()) return;
  JobEntry& job = JobOf(tx, reading->second);
  const bool expected = answer.scrub_id == job.scrub->id && answer.job == job.record.id &&
                        answer.directory == job.scrub->directory;
  if (!expected) return;  // of an order that was given up
  ReleaseOrder(tx, job);
  CheckpointRecord* checkpoint = FindCheckpoint(job, job.scrub->directory);
  // A checkpoint that was pruned in the meantime may be gone.
  if (checkpoint == nullptr || !Usable(*checkpoint)) return ScrubNext(tx, job);
  const std::string said = node.value + ": " + Sentence(answer);
  Scrub& scrub = job.scrub.Mutable();
  switch (answer.outcome) {
    case ScrubOutcome::kWhole: FoundWhole(tx, job, *checkpoint); break;
    case ScrubOutcome::kDamaged: FoundDamaged(tx, job, *checkpoint, said); break;
    case ScrubOutcome::kMissing:
      scrub.asked.insert(node);
      (OfNewestAttempt(job, node) ? scrub.missing : scrub.trouble) = said;
      break;
    case ScrubOutcome::kUnreachable:
    case ScrubOutcome::kUnreadable:
      scrub.asked.insert(node);
      scrub.trouble = said;
      break;
    case ScrubOutcome::kCalledOff: return SetScrubTime(tx, job, tx.now.mono + RetryOf(job));
  }
  ScrubNext(tx, job);
}

void ReadAgain(Transaction& tx, JobEntry& job, std::set<std::string> directories) {
  job.scrub.Mutable().wanted.merge(directories);
  if (job.scrub->id == 0) ScrubNext(tx, job);
}

void ReadAllAgain(Transaction& tx, JobEntry& job, const std::vector<RequestId>& requests) {
  std::set<std::string> committed;
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    if (IsCommitted(job, checkpoint)) committed.insert(checkpoint.directory);
  }
  for (const RequestId request : requests) {
    job.scrub.Mutable().requests.push_back(request);
    tx.state.readings.requests[request] = job.record.id;
  }
  job.scrub.Mutable().skip.clear();
  ReadAgain(tx, job, std::move(committed));
}

bool NothingToRead(const JobEntry& job) {
  return job.scrub->id == 0 && job.scrub->wanted.empty() && job.scrub->requests.empty();
}

}  // namespace muster::control
