#include "coordinator/control/scrub.h"

#include <algorithm>
#include <vector>

#include "common/base/text.h"
#include "coordinator/control/core.h"

namespace muster {
namespace {

// Until it is looked again whether a node is free, or the job in a state to be disturbed.
constexpr Duration kLiveRetry = std::chrono::seconds(2);
constexpr Duration kEndedRetry = std::chrono::seconds(30);
// Until a live job's checkpoint that no node could read is tried again: a mount comes back soon.
constexpr Duration kTroubleRetry = std::chrono::minutes(10);
// Orders that nobody has asked for, of all jobs: they share one file server as a rule.
constexpr std::size_t kMaxAtOnce = 4;
// Nodes that never ran the job, asked for one checkpoint.
constexpr std::size_t kMaxUnauthenticated = 3;
// A worker reads more slowly than it may where training wants the disk, and not at all beside a
// checkpoint that is being written.
constexpr Duration kTimeout = std::chrono::minutes(10);
constexpr double kSlowness = 8;

Duration RetryOf(const JobEntry& job) { return job.over() ? kEndedRetry : kLiveRetry; }

bool OfNewestAttempt(const JobEntry& job, const NodeName& node) {
  if (job.attempts.empty()) return false;
  const std::vector<NodeName>& nodes = job.attempts.back().nodes;
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

// What is being committed is read by that.
bool IsCommitted(const JobEntry& job, const CheckpointRecord& checkpoint) {
  const bool pending = !job.over() && !checkpoint.manifest_written &&
                       !job.manifest_failed.contains(checkpoint.directory);
  return Usable(checkpoint) && !pending;
}

Duration PatienceWith(const std::vector<ShardInfo>& shards, std::uint64_t bytes_per_second) {
  double bytes = 0;
  for (const ShardInfo& shard : shards) bytes += static_cast<double>(shard.bytes);
  const auto speed = static_cast<double>(std::max<std::uint64_t>(1, bytes_per_second));
  return kTimeout + FromSeconds(kSlowness * bytes / speed);
}

CheckpointRecord* Find(JobEntry& job, const std::string& directory) {
  for (CheckpointRecord& checkpoint : job.checkpoints) {
    if (checkpoint.directory == directory) return &checkpoint;
  }
  return nullptr;
}

std::string Sentence(const CheckpointScrubbed& answer) {
  const bool named = answer.file.empty() || answer.detail.find(answer.file) != std::string::npos;
  return CutText(named ? answer.detail : answer.file + ": " + answer.detail, kMaxReasonBytes);
}

}  // namespace

// --- time ---

std::optional<TimePoint> Scrubs::NextDeadline() const {
  std::optional<TimePoint> next;
  for (const auto* times : {&times_, &give_up_times_}) {
    if (times->empty()) continue;
    next = next ? std::min(*next, times->begin()->first) : times->begin()->first;
  }
  return next;
}

void Scrubs::SetTime(JobEntry& job, std::optional<TimePoint> at) {
  if (job.scrub.at) times_.erase({*job.scrub.at, job.record.id});
  job.scrub.at = at;
  if (at) times_.insert({*at, job.record.id});
}

void Scrubs::Run() {
  while (!give_up_times_.empty() && give_up_times_.begin()->first <= core_.now_.mono) {
    JobEntry& job = core_.jobs_.at(give_up_times_.begin()->second);
    EndVerification(job);
    VerificationOver(job);
  }
  while (!times_.empty() && times_.begin()->first <= core_.now_.mono) {
    JobEntry& job = core_.jobs_.at(times_.begin()->second);
    SetTime(job, std::nullopt);
    if (job.scrub.id != 0) {
      core_.Send(job.scrub.node, CancelScrub{job.scrub.id});
      job.scrub.asked.insert(job.scrub.node);
      job.scrub.trouble = job.scrub.node.value + " did not answer in time";
      ReleaseOrder(job);
    }
    ReadNext(job);
  }
}

// A live job may need any of its checkpoints at any moment. Those of one that has succeeded are
// what its successors begin from, and nobody else looks at them. What a failed or cancelled one has
// left is its user's to keep or remove, and a directory that a newer job writes to is that job's.
bool Scrubs::IsAutomatic(const JobEntry& job) const {
  if (core_.options_.scrub_interval <= Duration::zero()) return false;
  if (!job.over()) return true;
  return job.record.state == JobState::kSucceeded && OwnsOutput(job);
}

bool Scrubs::OwnsOutput(const JobEntry& job) const {
  const auto owner = owners_.find(job.record.output_dir);
  return owner == owners_.end() || owner->second <= job.record.submit_order;
}

void Scrubs::Register(const JobRecord& job) {
  std::uint64_t& owner = owners_[job.output_dir];
  owner = std::max(owner, job.submit_order);
}

// A job's scrubs wait while one of its checkpoints is verified, but for those that a client waits
// for.
bool Scrubs::LeftToVerification(const JobEntry& job) const {
  return !job.verification.directory.empty() && job.scrub.requests.empty();
}

// None that was never read: one of them is being read, and may make the others needless.
bool Scrubs::CanBeRead(const JobEntry& job, const CheckpointRecord& checkpoint) const {
  const bool left_to_verification = !Verified(checkpoint) && !job.verification.directory.empty();
  return IsCommitted(job, checkpoint) && !left_to_verification;
}

std::optional<TimePoint> Scrubs::Due(const JobEntry& job,
                                     const CheckpointRecord& checkpoint) const {
  if (!CanBeRead(job, checkpoint)) return std::nullopt;
  if (job.scrub.wanted.contains(checkpoint.directory)) return core_.now_.mono;
  if (!IsAutomatic(job)) return std::nullopt;
  const TimePoint now = core_.now_.mono;
  const auto read = job.scrub.read_at.find(checkpoint.directory);
  const bool known = read != job.scrub.read_at.end();
  const TimePoint due = known ? std::max(now, read->second + core_.options_.scrub_interval) : now;
  const auto skip = job.scrub.skip.find(checkpoint.directory);
  return skip == job.scrub.skip.end() ? due : std::max(due, skip->second);
}

// Of what an earlier coordinator has read the clock of the day tells the age, which may have been
// set since: a time to come begins the interval anew, and none is older than an interval.
void Scrubs::NoteReadTimes(JobEntry& job) {
  std::map<std::string, TimePoint> read_at;
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    if (!Verified(checkpoint)) continue;
    const Duration age =
        std::chrono::milliseconds(core_.now_.unix_ms - checkpoint.verified_unix_ms);
    const auto known = job.scrub.read_at.find(checkpoint.directory);
    read_at[checkpoint.directory] =
        known != job.scrub.read_at.end()
            ? known->second
            : core_.now_.mono - std::clamp(age, Duration::zero(), core_.options_.scrub_interval);
  }
  job.scrub.read_at = std::move(read_at);
}

void Scrubs::Plan(JobEntry& job) {
  NoteReadTimes(job);
  if (job.scrub.id != 0) return;  // its answer, or the end of the timeout with it, comes first
  if (LeftToVerification(job)) return SetTime(job, std::nullopt);
  std::optional<TimePoint> next;
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    const std::optional<TimePoint> due = Due(job, checkpoint);
    if (due && (!next || *due < *next)) next = due;
  }
  SetTime(job, next);
}

// --- verification ---

void Scrubs::Verify(JobEntry& job, const CheckpointRecord& checkpoint) {
  job.verification.waiting = checkpoint.directory;
  StartVerification(job);
}

void Scrubs::StartVerification(JobEntry& job) {
  if (!job.verification.directory.empty()) return;
  const CheckpointRecord* checkpoint = Find(job, std::exchange(job.verification.waiting, {}));
  if (checkpoint == nullptr || !IsCommitted(job, *checkpoint)) return;
  if (job.over() && job.record.state != JobState::kSucceeded) return;
  const Parts parts = PartsOf(job, *checkpoint);
  if (!parts.empty()) SendParts(job, *checkpoint, parts);
}

// By node: the shards of its own ranks, and where it is not connected those of another's.
Scrubs::Parts Scrubs::PartsOf(const JobEntry& job, const CheckpointRecord& checkpoint) const {
  const auto attempt = std::find_if(job.attempts.rbegin(), job.attempts.rend(),
                                    [&checkpoint](const AttemptRecord& each) {
                                      return each.generation == checkpoint.generation;
                                    });
  if (attempt == job.attempts.rend() || attempt->ranks.size() != checkpoint.shards.size())
    return {};
  const auto other = std::find_if(attempt->nodes.begin(), attempt->nodes.end(),
                                  [this](const NodeName& name) { return Connected(name); });
  if (other == attempt->nodes.end()) return {};
  Parts parts;
  for (std::size_t rank = 0; rank < attempt->ranks.size(); ++rank) {
    const NodeName& own = attempt->ranks[rank].node;
    parts[Connected(own) ? own : *other].push_back(checkpoint.shards[rank]);
  }
  return parts;
}

void Scrubs::SendParts(JobEntry& job, const CheckpointRecord& checkpoint, const Parts& parts) {
  Verification& verification = job.verification;
  const std::uint64_t limit = core_.options_.verify_bytes_per_second;
  const std::uint64_t speed = limit > 0 ? limit : core_.options_.scrub_bytes_per_second;
  verification.directory = checkpoint.directory;
  verification.give_up_at = core_.now_.mono;
  for (const auto& [node, shards] : parts) {
    CheckpointRecord part = checkpoint;
    part.shards = shards;
    verification.orders[++newest_] = node;
    verifying_[newest_] = job.record.id;
    verification.give_up_at =
        std::max(verification.give_up_at, core_.now_.mono + PatienceWith(shards, speed));
    core_.Send(node, ScrubCheckpoint{.scrub_id = newest_,
                                     .job = job.record.id,
                                     .output_dir = job.record.output_dir,
                                     .checkpoint = InfoOf(part),
                                     .max_bytes_per_second = limit,
                                     .at_once = true});
  }
  give_up_times_.insert({verification.give_up_at, job.record.id});
  if (job.scrub.id == 0 || !job.scrub.requests.empty()) return;
  core_.Send(job.scrub.node, CancelScrub{job.scrub.id});
  ReleaseOrder(job);
}

// An answer of a node that was not asked, or a second one, changes nothing.
void Scrubs::PartAnswered(JobEntry& job, const NodeName& node, const CheckpointScrubbed& answer) {
  Verification& verification = job.verification;
  const bool asked = verification.orders.at(answer.scrub_id) == node &&
                     answer.job == job.record.id && answer.directory == verification.directory;
  if (!asked) return core_.out_.observations.push_back(StaleMessageObserved{});
  verification.orders.erase(answer.scrub_id);
  verifying_.erase(answer.scrub_id);
  CheckpointRecord* checkpoint = Find(job, verification.directory);
  const bool wanted = checkpoint != nullptr && Usable(*checkpoint);
  const bool whole = answer.outcome == ScrubOutcome::kWhole;
  if (wanted && whole && !verification.orders.empty()) return;
  EndVerification(job);
  if (wanted && whole) Whole(job, *checkpoint);
  if (wanted && answer.outcome == ScrubOutcome::kDamaged)
    Damaged(job, *checkpoint, node.value + ": " + Sentence(answer));
  VerificationOver(job);
}

void Scrubs::EndVerification(JobEntry& job) {
  Verification& verification = job.verification;
  give_up_times_.erase({verification.give_up_at, job.record.id});
  for (const auto& [id, node] : verification.orders) {
    core_.Send(node, CancelScrub{id});
    verifying_.erase(id);
  }
  verification.orders.clear();
  verification.directory.clear();
}

void Scrubs::VerificationOver(JobEntry& job) {
  // One that waited for this makes the one needless that would have been next.
  if (core_.CommitUnlessTooMany(job)) job.verification.waiting.clear();
  StartVerification(job);
  if (job.scrub.id == 0 && !job.scrub.requests.empty()) {
    ReadNext(job);
  } else {
    Plan(job);
  }
  if (job.gang) core_.MaybeEndAttempt(job);
}

// --- orders ---

// Of those that are due what clients wait for, then the one that was read the longest ago.
CheckpointRecord* Scrubs::Next(JobEntry& job) {
  CheckpointRecord* next = nullptr;
  const auto order = [&job](const CheckpointRecord& checkpoint) {
    return std::pair(!job.scrub.wanted.contains(checkpoint.directory), checkpoint.verified_unix_ms);
  };
  for (CheckpointRecord& checkpoint : job.checkpoints) {
    const std::optional<TimePoint> due = Due(job, checkpoint);
    if (!due || *due > core_.now_.mono) continue;
    if (next == nullptr || order(checkpoint) < order(*next)) next = &checkpoint;
  }
  return next;
}

bool Scrubs::Connected(const NodeName& name) const {
  const NodeEntry* node = core_.FindNode(name);
  return node != nullptr && node->session != 0 && !node->suspect;
}

std::vector<NodeName> Scrubs::Readers(const JobEntry& job) const {
  std::vector<NodeName> readers;
  if (!job.attempts.empty()) {
    for (const NodeName& name : job.attempts.back().nodes) {
      if (Connected(name)) readers.push_back(name);
    }
  }
  std::size_t non_members = 0;
  for (const auto& [name, node] : core_.nodes_) {
    if (!Connected(name) || OfNewestAttempt(job, name) || non_members == kMaxUnauthenticated)
      continue;
    ++non_members;
    readers.push_back(name);
  }
  std::erase_if(readers, [&job](const NodeName& name) { return job.scrub.asked.contains(name); });
  return readers;
}

void Scrubs::ReadNext(JobEntry& job) {
  Scrub& scrub = job.scrub;
  if (LeftToVerification(job)) return;
  CheckpointRecord* checkpoint = Next(job);
  if (checkpoint == nullptr) {
    const bool comes =
        !job.verification.directory.empty() &&
        std::any_of(job.checkpoints.begin(), job.checkpoints.end(),
                    [&scrub](const CheckpointRecord& each) {
                      return !Verified(each) && scrub.wanted.contains(each.directory);
                    });
    if (comes) return Plan(job);
    Reply(job, scrub.unverified.empty() ? OkStatus() : FailedPrecondition(scrub.unverified));
    return Plan(job);
  }
  // A gang that comes up reads checkpoints itself, and is waited for.
  if (job.gang && job.record.state != JobState::kRunning)
    return SetTime(job, core_.now_.mono + RetryOf(job));
  if (scrub.directory != checkpoint->directory) {
    scrub.directory = checkpoint->directory;
    scrub.asked.clear();
    scrub.missing.clear();
    scrub.trouble.clear();
  }
  const std::vector<NodeName> readers = Readers(job);
  if (readers.empty() && !scrub.asked.empty()) return NobodyCanRead(job, *checkpoint);
  if (readers.empty())
    Reply(job, FailedPrecondition("no node is connected that could read the checkpoints of job " +
                                  job.record.id.value + "; 'muster nodes' lists them"));
  const bool enough = scrub.requests.empty() && reading_.size() >= kMaxAtOnce;
  if (enough || readers.empty() || reading_.contains(readers.front()))
    return SetTime(job, core_.now_.mono + RetryOf(job));
  Send(job, *checkpoint, readers.front());
}

void Scrubs::Send(JobEntry& job, const CheckpointRecord& checkpoint, const NodeName& node) {
  job.scrub.id = ++newest_;
  job.scrub.node = node;
  reading_[node] = job.record.id;
  const std::uint64_t speed = core_.options_.scrub_bytes_per_second;
  SetTime(job, core_.now_.mono + PatienceWith(checkpoint.shards, speed));
  core_.Send(node, ScrubCheckpoint{.scrub_id = newest_,
                                   .job = job.record.id,
                                   .output_dir = job.record.output_dir,
                                   .checkpoint = InfoOf(checkpoint),
                                   .max_bytes_per_second = speed});
}

void Scrubs::ReleaseOrder(JobEntry& job) {
  reading_.erase(job.scrub.node);
  job.scrub.id = 0;
  SetTime(job, std::nullopt);
}

void Scrubs::NodeLost(const NodeName& node) {
  std::set<JobId> verified;
  for (const auto& [id, job] : verifying_) {
    if (core_.jobs_.at(job).verification.orders.at(id) == node) verified.insert(job);
  }
  for (const JobId& id : verified) {
    JobEntry& job = core_.jobs_.at(id);
    // The nodes that are left read it, unless a newer one comes first.
    if (job.verification.waiting.empty()) job.verification.waiting = job.verification.directory;
    EndVerification(job);
    VerificationOver(job);
  }
  const auto reading = reading_.find(node);
  if (reading == reading_.end()) return;
  JobEntry& job = core_.jobs_.at(reading->second);
  ReleaseOrder(job);
  SetTime(job, core_.now_.mono + RetryOf(job));
}

// --- answers ---

void Scrubs::Answered(const NodeName& node, const CheckpointScrubbed& answer) {
  if (const auto part = verifying_.find(answer.scrub_id); part != verifying_.end())
    return PartAnswered(core_.jobs_.at(part->second), node, answer);
  const auto reading = reading_.find(node);
  if (reading == reading_.end()) return;
  JobEntry& job = core_.jobs_.at(reading->second);
  const bool expected = answer.scrub_id == job.scrub.id && answer.job == job.record.id &&
                        answer.directory == job.scrub.directory;
  if (!expected) return;  // of an order that was given up
  ReleaseOrder(job);
  CheckpointRecord* checkpoint = Find(job, job.scrub.directory);
  // One that was pruned meanwhile has every right to be gone.
  if (checkpoint == nullptr || !Usable(*checkpoint)) return ReadNext(job);
  const std::string said = node.value + ": " + Sentence(answer);
  switch (answer.outcome) {
    case ScrubOutcome::kWhole: Whole(job, *checkpoint); break;
    case ScrubOutcome::kDamaged: Damaged(job, *checkpoint, said); break;
    case ScrubOutcome::kMissing:
      job.scrub.asked.insert(node);
      (OfNewestAttempt(job, node) ? job.scrub.missing : job.scrub.trouble) = said;
      break;
    case ScrubOutcome::kUnreachable:
    case ScrubOutcome::kUnreadable:
      job.scrub.asked.insert(node);
      job.scrub.trouble = said;
      break;
    case ScrubOutcome::kCalledOff: return SetTime(job, core_.now_.mono + RetryOf(job));
  }
  ReadNext(job);
}

void Scrubs::Whole(JobEntry& job, CheckpointRecord& checkpoint) {
  Scrub& scrub = job.scrub;
  if (scrub.directory == checkpoint.directory) scrub.directory.clear();
  const bool is_first = !Verified(checkpoint);
  checkpoint.verified_unix_ms = core_.now_.unix_ms;
  scrub.read_at[checkpoint.directory] = core_.now_.mono;
  core_.Put(checkpoint);
  if (is_first) core_.PruneOld(job);
  core_.Changed(job);
  core_.out_.observations.push_back(ScrubObserved{ScrubOutcome::kWhole});
  if (scrub.wanted.erase(checkpoint.directory) > 0) ++scrub.verified.whole;
  scrub.skip.erase(checkpoint.directory);
  std::erase_if(scrub.skip, [&job](const auto& entry) {
    const CheckpointRecord* skipped = Find(job, entry.first);
    return skipped == nullptr || !Usable(*skipped);
  });
  if (!scrub.skip.empty() || job.record.scrub_trouble.empty()) return;
  job.record.scrub_trouble.clear();
  core_.Mark(job);
  core_.RecordEvent(job,
                    {"checkpoints_reachable", Severity::kInfo, "checkpoints can be read again"});
}

void Scrubs::Damaged(JobEntry& job, CheckpointRecord& checkpoint, const std::string& found) {
  Scrub& scrub = job.scrub;
  if (scrub.directory == checkpoint.directory) scrub.directory.clear();
  scrub.skip.erase(checkpoint.directory);
  checkpoint.refused = CutText("found damaged on " + found, kMaxReasonBytes);
  core_.Put(checkpoint);
  UpdateCommittedStep(job);
  core_.Mark(job);
  core_.out_.observations.push_back(ScrubObserved{ScrubOutcome::kDamaged});
  if (scrub.wanted.erase(checkpoint.directory) > 0)
    scrub.verified.damaged.push_back(checkpoint.directory);
  core_.RecordEvent(job, {"checkpoint_damaged", Severity::kError,
                          "checkpoint " + checkpoint.directory +
                              " is damaged and is not resumed from: " + checkpoint.refused});
}

// Everybody was asked. What a node of the gang's misses in the job's own directory is gone; all
// else says nothing about the checkpoint.
void Scrubs::NobodyCanRead(JobEntry& job, const CheckpointRecord& checkpoint) {
  Scrub& scrub = job.scrub;
  if (!scrub.missing.empty()) {
    Damaged(job, *Find(job, checkpoint.directory), scrub.missing);
    return ReadNext(job);
  }
  core_.out_.observations.push_back(ScrubObserved{ScrubOutcome::kUnreadable});
  const std::string text =
      "checkpoint " + checkpoint.directory + " cannot be reached: " + scrub.trouble;
  const Duration interval = core_.options_.scrub_interval;
  scrub.skip[checkpoint.directory] =
      core_.now_.mono + (job.over() ? interval : std::min(interval, kTroubleRetry));
  if (scrub.wanted.erase(checkpoint.directory) > 0) scrub.unverified = text;
  scrub.directory.clear();
  if (job.record.scrub_trouble.empty()) {
    core_.RecordEvent(job, {"checkpoints_unreachable", Severity::kWarning,
                            text + "; it is tried again, and not taken for damaged"});
    job.record.scrub_trouble = scrub.trouble;
    core_.Mark(job);
  }
  ReadNext(job);
}

// --- clients ---

void Scrubs::Start(const VerifyRequested& request) {
  const Result<JobView> view = core_.FindJob(request.job);
  if (!view.ok()) return core_.out_.replies.push_back({request.request, view.status(), {}});
  JobEntry& job = core_.jobs_.at(view->record->id);
  job.scrub.requests.push_back(request.request);
  job.scrub.skip.clear();
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    if (IsCommitted(job, checkpoint)) job.scrub.wanted.insert(checkpoint.directory);
  }
  if (job.scrub.id == 0) ReadNext(job);
}

void Scrubs::Forget(const CallerGone& gone) {
  for (const auto& [at, job] : times_) std::erase(core_.jobs_.at(job).scrub.requests, gone.request);
}

void Scrubs::Reply(JobEntry& job, Status status) {
  Scrub& scrub = job.scrub;
  for (const RequestId request : scrub.requests) {
    muster::Reply reply{request, status, {}};
    if (status.ok()) reply.body = scrub.verified;
    core_.out_.replies.push_back(std::move(reply));
  }
  scrub.requests.clear();
  scrub.wanted.clear();
  scrub.verified = {};
  scrub.unverified.clear();
}

}  // namespace muster
