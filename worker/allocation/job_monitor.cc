#include "worker/allocation/job_monitor.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/base/strings.h"
#include "common/base/text.h"

namespace muster::worker {
namespace {

constexpr char kMark[] = " (run ";
// A request whose answer was lost is sent again.
constexpr Duration kAskAgain = std::chrono::seconds(2);
constexpr Duration kMinute = std::chrono::seconds(60);

// The coordinator's reason begins with the state, and so do messages about an ending.
std::string WithoutState(const std::string& reason) {
  constexpr std::string_view kState = "suspended: ";
  return reason.starts_with(kState) ? reason.substr(kState.size()) : reason;
}

}  // namespace

std::string RunMark(int run) { return kMark + std::to_string(run) + ")"; }

int MarkedRun(const std::string& reason) {
  const std::size_t at = reason.rfind(kMark);
  if (at == std::string::npos) return -1;
  const char* begin = reason.data() + at + sizeof kMark - 1;
  const char* end = reason.data() + reason.size();
  int run = -1;
  const auto [rest, error] = std::from_chars(begin, end, run);
  return error == std::errc() && rest != end && *rest == ')' && run >= 0 ? run : -1;
}

std::vector<JobMonitorEffect> JobMonitor::TakeEffects() { return std::exchange(effects_, {}); }

void JobMonitor::End(Ending ending) {
  if (!std::exchange(ended_, true)) effects_.push_back(Limited(std::move(ending)));
}

Ending JobMonitor::Limited(Ending ending) const {
  if (ending.action != EndAction::kRequeue) return ending;
  const int in_vain = ProgressAfter(ending).in_vain;
  std::string limit;
  if (options_.run >= options_.max_requeues) {
    limit = "; it was requeued " + std::to_string(options_.run) +
            " times, which is the limit (--max-requeues)";
  } else if (options_.max_in_vain > 0 && in_vain >= options_.max_in_vain) {
    limit = "; " + std::to_string(in_vain) + " runs in a row came no further than step " +
            std::to_string(std::max(step_, options_.before.step)) +
            " and saved nothing new, which is the limit (restart.max_without_progress): see their "
            "logs, and requeue or submit the job again when the cause is mended";
  }
  if (limit.empty()) return ending;
  ending.action = EndAction::kLeave;
  ending.exit_code = kExitUnavailable;
  ending.reason += limit;
  return ending;
}

RunProgress JobMonitor::ProgressAfter(const Ending& ending) const {
  const RunProgress& before = options_.before;
  RunProgress after{.run = options_.run,
                    .step = std::max(step_, before.step),
                    .checkpoint = std::max(checkpoint_, before.checkpoint),
                    .in_vain = before.in_vain};
  // A user who runs a job again that was left has handled it.
  const bool further = after.step > before.step || after.checkpoint > before.checkpoint;
  if (further || ending.exit_code == kExitUnavailable)
    after.in_vain = 0;
  else if (ending.action == EndAction::kRequeue && !CutShort())
    ++after.in_vain;
  return after;
}

bool JobMonitor::CutShort() const {
  return told_to_stop_ && !(end_time_ && now_ >= *end_time_ - time_left_ / 2);
}

void JobMonitor::OnRefused(const Status& why) {
  End({.exit_code = kExitBadData,
       .reason = "the job was refused: " + why.message(),
       .exclude = {}});
}

void JobMonitor::OnCoordinatorChanged() {
  asked_.reset();
  job_.reset();
}

void JobMonitor::OnStopNotice(TimePoint by, const std::string& reason) {
  if (!stop_by_) told_to_stop_ = true;
  StopBy(by, reason);
}

void JobMonitor::StopBy(TimePoint by, const std::string& reason) {
  if (stop_by_ && *stop_by_ <= by) return;
  asked_.reset();  // a follower's notice, whose grace is the longest, may have been ordered already
  stop_by_ = by;
  stop_reason_ = reason;
}

void JobMonitor::OnJob(const JobPicture& job) {
  if (ended_) return;
  job_ = job;
  step_ = std::max(step_, job.step);
  checkpoint_ = std::max(checkpoint_, job.checkpoint);
  if (job.phase != JobPhase::kWaiting) waiting_since_.reset();
  if (job.phase == JobPhase::kActive) ran_ = true;
  switch (job.phase) {
    case JobPhase::kWaiting:
    case JobPhase::kActive: return;
    case JobPhase::kSuspended: return OnSuspended(job);
    case JobPhase::kSucceeded:
      return End({.exit_code = kExitSucceeded, .reason = "the job has succeeded", .exclude = {}});
    case JobPhase::kFailed:
      return End(
          {.exit_code = kExitFailed, .reason = "the job failed: " + job.reason, .exclude = {}});
    case JobPhase::kCancelled:
      return End({.exit_code = kExitCancelled,
                  .reason = "the job was cancelled: " + job.reason,
                  .exclude = {}});
  }
}

// Whether it was suspended before this run began: for the end of an earlier one, or by its user,
// who has requeued it since.
bool JobMonitor::OfEarlierRun(const JobPicture& job) const {
  const int run = MarkedRun(job.reason);
  if (run >= 0) return run < options_.run;
  return run_begins_ && !ran_ && options_.run > 0;
}

// A job suspended for the end of this run continues in the next one.
void JobMonitor::OnSuspended(const JobPicture& job) {
  const int run = MarkedRun(job.reason);
  if (run < 0 && !OfEarlierRun(job)) {
    return End({.exit_code = kExitSuspended,
                .reason = "by its user: " + WithoutState(job.reason) +
                          "; requeue the Slurm job to resume it",
                .exclude = {}});
  }
  if (run != options_.run && !stop_by_) return;
  End({.exit_code = kExitRequeue,
       .action = EndAction::kRequeue,
       .reason = "the job is saved and suspended: " + WithoutState(job.reason),
       .exclude = {}});
}

void JobMonitor::ConsiderResuming(const NodesSeen& nodes, TimePoint now) {
  if (!job_ || job_->phase != JobPhase::kSuspended) return suspended_since_.reset();
  if (!OfEarlierRun(*job_)) return;
  if (!suspended_since_) suspended_since_ = now;
  const bool whole = nodes.some_ready && nodes.missing.empty() && nodes.unready.empty();
  if (!whole && now - *suspended_since_ < options_.assembly) return;
  if (asked_ && now - *asked_ < kAskAgain) return;
  asked_ = now;
  effects_.emplace_back(std::in_place_type<ResumeJob>);
}

Duration JobMonitor::Lead() const {
  if (options_.lead) return *options_.lead;
  const Duration measured = kMinute + FromSeconds(2 * (job_ ? job_->checkpoint_seconds : 0));
  return std::min(measured, time_left_ / 2);
}

void JobMonitor::SetEndTime(TimePoint end, TimePoint now) {
  if (!end_time_) time_left_ = end - now;
  end_time_ = end;
  if (stop_by_) stop_by_ = std::min(*stop_by_, end);
}

void JobMonitor::OnEndIsNear(const std::string& reason, Duration otherwise, TimePoint now) {
  OnStopNotice(end_time_.value_or(now + otherwise), reason);
}

void JobMonitor::AskToStop(TimePoint now) {
  if (asked_ && now - *asked_ < kAskAgain) return;
  asked_ = now;
  const double seconds = ToSeconds(*stop_by_ - options_.margin - now);
  effects_.push_back(SuspendJob{std::max(seconds, 1.0), stop_reason_ + RunMark(options_.run)});
}

void JobMonitor::Tick(const NodesSeen& nodes, TimePoint now) {
  if (ended_) return;
  now_ = now;
  some_ready_ = some_ready_ || nodes.some_ready;
  if (end_time_ && now >= *end_time_ - Lead()) StopBy(*end_time_, "the allocation's time ends");
  if (stop_by_) {
    if (now >= *stop_by_ - options_.margin / 3) {
      return End({.exit_code = kExitRequeue,
                  .action = EndAction::kRequeue,
                  .reason = stop_reason_ + ", and the job was not saved in time: it goes on from "
                                           "its last checkpoint",
                  .exclude = {}});
    }
    if (job_) AskToStop(now);
    return;
  }
  ConsiderResuming(nodes, now);
  WatchWaiting(nodes, now);
}

void JobMonitor::WatchWaiting(const NodesSeen& nodes, TimePoint now) {
  if (!job_ || job_->phase != JobPhase::kWaiting) return;
  if (!waiting_since_) waiting_since_ = now;
  if (now - *waiting_since_ >= options_.timeout) EndUnplaced(nodes);
}

void JobMonitor::EndUnplaced(const NodesSeen& nodes) {
  // If no node was ever ready, others would not be either: the cause is not the nodes.
  const std::vector<std::string> refused = some_ready_ ? nodes.unready : std::vector<std::string>{};
  std::vector<std::string> bad = nodes.missing;
  bad.insert(bad.end(), refused.begin(), refused.end());
  if (!bad.empty()) {
    std::string reason = "the job waits for nodes";
    if (!nodes.missing.empty()) reason += " that this allocation has lost: " + Join(nodes.missing);
    if (!refused.empty())
      reason += std::string(nodes.missing.empty() ? "" : ";") +
                " that its coordinator does not use: " + Join(refused);
    return End({.exit_code = kExitRequeue,
                .action = EndAction::kRequeue,
                .reason = reason,
                .exclude = bad});
  }
  End({.exit_code = kExitConfig,
       .reason = "the job cannot be placed on this allocation: " + job_->reason,
       .exclude = {}});
}

}  // namespace muster::worker
