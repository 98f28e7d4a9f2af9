// Of World: whether everything comes to its end once nothing fails any more.
//
// Every wait of the product has a budget. So a job with a live attempt must change within the
// longest one and those that surround it, and where no attempt is live something must change within
// the longest wait that is no attempt's. That there is no endless row of attempts is a matter of
// max_without_progress, and of `calm_limit` for what that does not bound.
#include <algorithm>

#include "coordinator/control/node_backoff.h"
#include "coordinator/control/node_verdict.h"
#include "coordinator/detect/hang_detector.h"
#include "tests/simulation/world.h"

namespace muster::sim {
namespace {

Duration LongestOfAnAttempt(const ControllerOptions& options) {
  const Duration quiet_phase = FromSeconds(HangOptions().long_phase_seconds);
  return std::max(options.form_deadline, quiet_phase) + kPrepareDeadline + kLaunchDeadline +
         kStopGrace + kAbortDeadline + kCancelGrace + options.lease;
}

Duration LongestBetweenAttempts(const ControllerOptions& options) {
  return kRefusedUntilLost + options.lease + kAbortDeadline +
         std::max(options.max_backoff, kLongestRefusal);
}

}  // namespace

// Equal as long as nothing happens to the job.
std::uint64_t World::MotionOf(const JobView& job) const {
  const JobRecord& record = *job.record;
  std::uint64_t motion = Mix(1, static_cast<std::uint64_t>(record.generation));
  motion = Mix(motion, static_cast<std::uint64_t>(record.state));
  motion = Mix(motion, record.pending_release.size());
  if (job.attempts->empty()) return motion;
  motion = Mix(motion, static_cast<std::uint64_t>(job.attempts->back().state));
  const auto gang = gangs_.find({record.id, record.generation});
  return gang == gangs_.end() ? motion : Mix(motion, gang->second->Stage());
}

void World::CheckThatAllEnds() {
  if (!coordinator_->up() || coordinator_->paused()) return;
  const TimePoint now = queue_.now();
  bool any_works = false;
  for (const JobView& job : coordinator_->controller().Jobs()) {
    const std::uint64_t motion = MotionOf(job);
    Motion& known = motions_[job.record->id];
    if (known.motion != motion) {
      known = {motion, now};
      idle_since_ = now;
    }
    const bool works = !job.attempts->empty() && job.attempts->back().state != AttemptState::kEnded;
    any_works = any_works || works;
    if (works && now - known.since > LongestOfAnAttempt(controller_options_)) {
      oracle_->Violate("everything ends", "longer than any budget: " + Describe(job));
    }
  }
  if (any_works) idle_since_ = now;
  if (now - idle_since_ > LongestBetweenAttempts(controller_options_)) {
    oracle_->Violate("everything ends", "nothing happens any more: " + Unfinished());
  }
  if (now - calm_at_ > options_.calm_limit) {
    oracle_->Violate("everything ends", "long after the last fault: " + Unfinished());
  }
}

std::string World::Describe(const JobView& job) const {
  const JobRecord& record = *job.record;
  std::string text =
      record.id.value + " is " + std::string(Name(record.state)) + " (" + record.reason + "; ";
  const auto gang = gangs_.find({record.id, record.generation});
  if (gang != gangs_.end()) text += gang->second->Describe();
  return text + ")";
}

std::string World::Unfinished() const {
  if (!coordinator_->up() || coordinator_->paused()) return "the coordinator is not up";
  std::string text;
  for (const Request& request : requests_) {
    if (!request.id) text += request.key + " is not acknowledged, ";
    if (request.cancel && !request.cancelled) text += "a cancel is not acknowledged, ";
  }
  for (const JobView& job : coordinator_->controller().Jobs()) {
    const JobRecord& record = *job.record;
    if (!IsTerminal(record.state)) {
      text += Describe(job) + ", ";
      continue;
    }
    for (const NodeName& node : record.pending_release) {
      text += record.id.value + " waits for " + node.value + ", ";
    }
  }
  return text;
}

}  // namespace muster::sim
