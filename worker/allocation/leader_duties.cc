#include "worker/allocation/leader_duties.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/telemetry/log.h"

namespace muster::worker {
namespace {

constexpr std::chrono::milliseconds kPollAgain{200};
constexpr std::chrono::milliseconds kAskAgain{500};
constexpr std::chrono::seconds kSubmitAgain{1};
constexpr double kLongTime = 30 * 86400.0;  // seconds

}  // namespace

LeaderDuties::LeaderDuties(EventLoop& loop, LeaderDutiesOptions options, Handlers handlers)
    : loop_(loop),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      monitor_(options_.monitor) {}

void LeaderDuties::OnCoordinatorUp(const Endpoint& endpoint, std::string token, bool first,
                                   TimePoint now) {
  client_ = std::make_unique<JobClient>(loop_, endpoint, std::move(token));
  job_id_.clear();
  ready_.clear();
  submitting_ = polling_ = asking_ = false;
  heard_ = now;
  if (first) monitor_.OnRunBegins();
  monitor_.OnCoordinatorChanged();
}

void LeaderDuties::Forget() {
  client_.reset();
  const auto stop_by = monitor_.stop_by();
  const std::string reason = monitor_.stop_reason();
  monitor_ = JobMonitor(options_.monitor);
  if (stop_by) monitor_.OnStopNotice(*stop_by, reason);
}

void LeaderDuties::Tick(const PeersSeen& peers, TimePoint now) {
  if (client_ && now - heard_ > options_.timeout) {
    client_.reset();
    handlers_.on_hung();
  }
  if (client_ && job_id_.empty() && now >= submit_at_) Submit(now);
  if (client_ && !job_id_.empty() && now >= poll_at_) Poll(now);
  if (client_ && monitor_.WantsNodes() && now >= ask_at_) AskForNodes(now);
  monitor_.Tick(SeenNodes(options_.node_names, ready_, peers), now);
  for (const JobMonitorEffect& effect : monitor_.TakeEffects())
    std::visit([this](const auto& e) { Do(e); }, effect);
}

NodesSeen SeenNodes(const std::vector<std::string>& node_names, const std::set<std::string>& ready,
                    const PeersSeen& peers) {
  NodesSeen seen{.missing = peers.missing, .unready = {}, .some_ready = !ready.empty()};
  for (const std::string& node : node_names) {
    const bool lost =
        std::find(peers.missing.begin(), peers.missing.end(), node) != peers.missing.end();
    if (!lost && !ready.contains(node) && !peers.without_worker.contains(node))
      seen.unready.push_back(node);
  }
  return seen;
}

// Any response is an answer.
void LeaderDuties::Heard(const Status& status) {
  const StatusCode code = status.code();
  if (code != StatusCode::kUnavailable && code != StatusCode::kDeadlineExceeded)
    heard_ = SystemClock().Now();
}

void LeaderDuties::Submit(TimePoint now) {
  if (std::exchange(submitting_, true)) return;
  submit_at_ = now + kSubmitAgain;
  client_->Submit(options_.job_yaml, options_.key, [this](const Result<std::string>& id) {
    submitting_ = false;
    Heard(id.status());
    if (id.ok()) {
      job_id_ = *id;
      return;
    }
    const StatusCode code = id.status().code();
    if (code == StatusCode::kInvalidArgument || code == StatusCode::kAlreadyExists)
      return monitor_.OnRefused(id.status());
    Log().warn("the job could not be submitted: {}; trying again", id.status().message());
  });
}

void LeaderDuties::Poll(TimePoint now) {
  if (std::exchange(polling_, true)) return;
  poll_at_ = now + kPollAgain;
  client_->Get(job_id_, [this](const Result<JobPicture>& job) {
    polling_ = false;
    Heard(job.status());
    if (job.ok()) monitor_.OnJob(*job);
  });
}

void LeaderDuties::AskForNodes(TimePoint now) {
  if (std::exchange(asking_, true)) return;
  ask_at_ = now + kAskAgain;
  client_->ListNodes([this](const Result<std::vector<NodePicture>>& nodes) {
    asking_ = false;
    if (!nodes.ok()) return;
    ready_.clear();
    for (const NodePicture& node : *nodes)
      if (node.ready) ready_.insert(node.name);
  });
}

void LeaderDuties::Do(const SuspendJob& order) {
  if (!client_ || job_id_.empty()) return;
  // Slurm gives an allocation without a limit a year.
  if (order.by_seconds < kLongTime)
    Log().info("{}: the job is to be saved and suspended within {:.0f} s", order.reason,
               order.by_seconds);
  else
    Log().info("{}: the job is to be saved and suspended", order.reason);
  client_->Suspend(job_id_, order, [](const Status& status) {
    if (!status.ok()) Log().warn("the job was not suspended: {}", status.message());
  });
}

void LeaderDuties::Do(const ResumeJob&) {
  if (!client_ || job_id_.empty()) return;
  Log().info("resuming the job, which was suspended before this run of the allocation");
  client_->Resume(job_id_, [](const Status& status) {
    if (!status.ok()) Log().warn("the job was not resumed: {}", status.message());
  });
}

void LeaderDuties::Do(const Ending& ending) { handlers_.on_ending(ending); }

}  // namespace muster::worker
