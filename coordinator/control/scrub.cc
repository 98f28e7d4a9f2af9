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

// The commit of one without a manifest has it read anyway.
bool CanBeRead(const JobEntry& job, const CheckpointRecord& checkpoint) {
  const bool pending = !job.over() && !checkpoint.manifest_written &&
                       !job.manifest_failed.contains(checkpoint.directory);
  return checkpoint.state == CheckpointState::kCommitted && checkpoint.refused.empty() && !pending;
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
  return times_.empty() ? std::nullopt : std::optional(times_.begin()->first);
}

void Scrubs::SetTime(JobEntry& job, std::optional<TimePoint> at) {
  if (job.scrub.at) times_.erase({*job.scrub.at, job.record.id});
  job.scrub.at = at;
  if (at) times_.insert({*at, job.record.id});
}

void Scrubs::Run() {
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
  if (job.record.state != JobState::kSucceeded) return false;
  const auto owner = owners_.find(job.record.output_dir);
  return owner == owners_.end() || owner->second <= job.record.submit_order;
}

void Scrubs::Register(const JobRecord& job) {
  std::uint64_t& owner = owners_[job.output_dir];
  owner = std::max(owner, job.submit_order);
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
    if (VerifiedUnixMs(checkpoint) == 0) continue;
    const Duration age = std::chrono::milliseconds(core_.now_.unix_ms - VerifiedUnixMs(checkpoint));
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
  std::optional<TimePoint> next;
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    const std::optional<TimePoint> due = Due(job, checkpoint);
    if (due && (!next || *due < *next)) next = due;
  }
  SetTime(job, next);
}

// --- orders ---

// Of those that are due what clients wait for, then the one that was read the longest ago.
CheckpointRecord* Scrubs::Next(JobEntry& job) {
  CheckpointRecord* next = nullptr;
  const auto order = [&job](const CheckpointRecord& checkpoint) {
    return std::pair(!job.scrub.wanted.contains(checkpoint.directory), VerifiedUnixMs(checkpoint));
  };
  for (CheckpointRecord& checkpoint : job.checkpoints) {
    const std::optional<TimePoint> due = Due(job, checkpoint);
    if (!due || *due > core_.now_.mono) continue;
    if (next == nullptr || order(checkpoint) < order(*next)) next = &checkpoint;
  }
  return next;
}

std::vector<NodeName> Scrubs::Readers(const JobEntry& job) const {
  std::vector<NodeName> readers;
  const auto connected = [](const NodeEntry& node) { return node.session != 0 && !node.suspect; };
  if (!job.attempts.empty()) {
    for (const NodeName& name : job.attempts.back().nodes) {
      const NodeEntry* node = core_.FindNode(name);
      if (node != nullptr && connected(*node)) readers.push_back(name);
    }
  }
  std::size_t non_members = 0;
  for (const auto& [name, node] : core_.nodes_) {
    if (!connected(node) || OfNewestAttempt(job, name) || non_members == kMaxUnauthenticated)
      continue;
    ++non_members;
    readers.push_back(name);
  }
  std::erase_if(readers, [&job](const NodeName& name) { return job.scrub.asked.contains(name); });
  return readers;
}

void Scrubs::ReadNext(JobEntry& job) {
  Scrub& scrub = job.scrub;
  CheckpointRecord* checkpoint = Next(job);
  if (checkpoint == nullptr) {
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
  double bytes = 0;
  for (const ShardInfo& shard : checkpoint.shards) bytes += static_cast<double>(shard.bytes);
  const std::uint64_t speed = std::max<std::uint64_t>(1, core_.options_.scrub_bytes_per_second);
  const double seconds = kSlowness * bytes / static_cast<double>(speed);
  SetTime(job, core_.now_.mono + kTimeout + FromSeconds(seconds));
  core_.Send(node, ScrubCheckpoint{.scrub_id = newest_,
                                   .job = job.record.id,
                                   .output_dir = job.record.output_dir,
                                   .checkpoint = InfoOf(checkpoint),
                                   .max_bytes_per_second = core_.options_.scrub_bytes_per_second});
}

void Scrubs::ReleaseOrder(JobEntry& job) {
  reading_.erase(job.scrub.node);
  job.scrub.id = 0;
  SetTime(job, std::nullopt);
}

void Scrubs::NodeLost(const NodeName& node) {
  const auto reading = reading_.find(node);
  if (reading == reading_.end()) return;
  JobEntry& job = core_.jobs_.at(reading->second);
  ReleaseOrder(job);
  SetTime(job, core_.now_.mono + RetryOf(job));
}

// --- answers ---

void Scrubs::Answered(const NodeName& node, const CheckpointScrubbed& answer) {
  const auto reading = reading_.find(node);
  if (reading == reading_.end()) return;
  JobEntry& job = core_.jobs_.at(reading->second);
  const bool expected = answer.scrub_id == job.scrub.id && answer.job == job.record.id &&
                        answer.directory == job.scrub.directory;
  if (!expected) return;  // of an order that was given up
  ReleaseOrder(job);
  CheckpointRecord* checkpoint = Find(job, job.scrub.directory);
  // One that was pruned meanwhile has every right to be gone.
  if (checkpoint == nullptr || !CanBeRead(job, *checkpoint)) return ReadNext(job);
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
  scrub.directory.clear();
  checkpoint.verified_unix_ms = core_.now_.unix_ms;
  scrub.read_at[checkpoint.directory] = core_.now_.mono;
  core_.Put(checkpoint);
  core_.Changed(job);
  core_.out_.observations.push_back(ScrubObserved{ScrubOutcome::kWhole});
  if (scrub.wanted.erase(checkpoint.directory) > 0) ++scrub.verified.whole;
  scrub.skip.erase(checkpoint.directory);
  std::erase_if(scrub.skip, [&job](const auto& entry) {
    const CheckpointRecord* skipped = Find(job, entry.first);
    return skipped == nullptr || !CanBeRead(job, *skipped);
  });
  if (!scrub.skip.empty() || job.record.scrub_trouble.empty()) return;
  job.record.scrub_trouble.clear();
  core_.Mark(job);
  core_.RecordEvent(job,
                    {"checkpoints_reachable", Severity::kInfo, "checkpoints can be read again"});
}

void Scrubs::Damaged(JobEntry& job, CheckpointRecord& checkpoint, const std::string& found) {
  Scrub& scrub = job.scrub;
  scrub.directory.clear();
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
    if (CanBeRead(job, checkpoint)) job.scrub.wanted.insert(checkpoint.directory);
  }
  if (job.scrub.id == 0) ReadNext(job);
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
