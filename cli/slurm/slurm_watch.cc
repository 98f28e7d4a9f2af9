#include "cli/slurm/slurm_watch.h"

#include <utility>

namespace muster {
namespace {

constexpr Duration kSlurmPause = std::chrono::seconds(15);

bool Differ(const std::optional<SlurmOutcome>& a, const std::optional<SlurmOutcome>& b) {
  if (!a || !b) return a.has_value() != b.has_value();
  return a->run != b->run || a->action != b->action;
}

bool MayAnswerLater(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded;
}

}  // namespace

SlurmWatch::SlurmWatch(const slurm::SlurmCommands& commands, std::string job, std::string state_dir)
    : commands_(commands),
      name_(std::move(job)),
      state_dir_(std::move(state_dir)),
      ask_at_(SystemClock().Now()) {
  job_.state_dir = state_dir_;
}

// That nobody can ask Slurm here does not say that it has forgotten the job.
Result<SlurmJob> SlurmWatch::Ask() const {
  auto found = FindSlurmJob(commands_, CurrentUser(), name_, "");
  if (found.ok()) return WithState(std::move(found->slurm), state_dir_);
  if (found.status().code() != StatusCode::kNotFound) return found.status();
  return WithState({}, state_dir_);
}

Result<std::optional<int>> SlurmWatch::Look() {
  auto outcome = ReadOutcome(state_dir_);
  const bool changed = Differ(outcome, job_.outcome);
  job_.outcome = std::move(outcome);
  job_.leader = ReadLeader(state_dir_);
  if (!changed && SystemClock().Now() < ask_at_) return std::optional<int>();
  auto found = Ask();
  if (!found.ok() && !MayAnswerLater(found.status())) return found.status();
  // Until Slurm has tidied up behind an outcome it is asked more often.
  const bool ending = job_.outcome && job_.outcome->action == "done";
  ask_at_ = SystemClock().Now() + (ending ? kSlurmLookPause : kSlurmPause);
  if (!found.ok()) return std::optional<int>();
  job_ = *std::move(found);
  return EndOf(job_);
}

}  // namespace muster
