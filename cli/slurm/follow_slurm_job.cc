#include "cli/slurm/follow_slurm_job.h"

#include <optional>
#include <utility>

#include "cli/base/exit_code.h"
#include "cli/follow/follow_job.h"
#include "cli/slurm/allocation_access.h"
#include "cli/slurm/allocation_report.h"
#include "cli/slurm/slurm_job.h"

namespace muster {
namespace {

// A wait that starts this long after the last one is a new loss of the coordinator.
constexpr Duration kNewLoss = std::chrono::seconds(30);
// Longer than any takeover.
constexpr Duration kPerhapsUnreachable = std::chrono::seconds(20);

constexpr Duration kSlurmLookPause = std::chrono::seconds(1);
constexpr Duration kSlurmPause = std::chrono::seconds(15);

bool Differ(const std::optional<SlurmOutcome>& a, const std::optional<SlurmOutcome>& b) {
  if (!a || !b) return a.has_value() != b.has_value();
  return a->run != b->run || a->action != b->action;
}

bool MayAnswerLater(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded;
}

// SlurmWatch: whether a job under Slurm has ended.
//
// Look reads the supervisors' outcome.json each time. It asks Slurm, whose controller serves a
// whole cluster, every 15 seconds and after a change of the outcome, and tolerates a controller
// that restarts. Owned by a verb. Blocks for files and for Slurm's commands; one thread.
class SlurmWatch {
 public:
  // `job` as FindSlurmJob takes it.
  SlurmWatch(const slurm::SlurmCommands& commands, std::string job, std::string state_dir);

  // The exit code of a job that has ended; nothing while it may still run.
  Result<std::optional<int>> Look();
  // Has the next Look ask Slurm.
  void AskNow() { ask_at_ = SystemClock().Now(); }

  // What was known at the last Look: Slurm's part may be older than the supervisors'.
  const SlurmJob& job() const { return job_; }

 private:
  Result<SlurmJob> Ask() const;

  const slurm::SlurmCommands& commands_;
  const std::string name_;
  const std::string state_dir_;
  SlurmJob job_;
  TimePoint ask_at_;
};

SlurmWatch::SlurmWatch(const slurm::SlurmCommands& commands, std::string job, std::string state_dir)
    : commands_(commands),
      name_(std::move(job)),
      state_dir_(std::move(state_dir)),
      ask_at_(SystemClock().Now()) {
  job_.state_dir = state_dir_;
}

// Only kNotFound means that Slurm has forgotten the job.
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
  // Slurm is asked more often between an outcome and the end of its own cleanup.
  const bool ending = job_.outcome && job_.outcome->action == "done";
  ask_at_ = SystemClock().Now() + (ending ? kSlurmLookPause : kSlurmPause);
  if (!found.ok()) return std::optional<int>();
  job_ = *std::move(found);
  return EndOf(job_);
}

class Follower {
 public:
  Follower(CommandContext& context, const slurm::SlurmCommands& commands, std::string job,
           const std::string& state_dir)
      : context_(context),
        name_(std::move(job)),
        watch_(commands, name_, state_dir),
        access_(state_dir, CurrentUser()),
        client_(context.dir(), context.interrupt(), [this] { return access_.Find(); }) {}

  CommandResult Run() {
    const auto notice = [this](const std::string& text) { context_.terminal.err << text << "\n"; };
    const auto id = AwaitJob(notice);
    if (!id.ok()) return Ended(id.status());
    CommandContext own{client_, context_.terminal, context_.output};
    AttachOptions options;
    options.job = *id;
    options.attach_again = "muster slurm attach " + ShellWord(name_);
    options.await_coordinator = [this](const Notice& notice) { return AwaitCoordinator(notice); };
    CommandResult result = AttachToJob(own, options);
    return result.ok() ? result : Ended(result.status());
  }

 private:
  using Notice = std::function<void(const std::string&)>;

  // Called repeatedly while no coordinator answers; waits a little each time.
  Status AwaitCoordinator(const Notice& notice) {
    const TimePoint now = SystemClock().Now();
    if (now - waited_at_ > kNewLoss) {
      watch_.AskNow();
      waiting_since_ = now;
    }
    MUSTER_ASSIGN_OR_RETURN(end_, watch_.Look());
    if (end_) return Aborted("the job ended");
    if (const std::string news = News(now); !news.empty() && news != reported_) {
      notice(news);
      reported_ = news;
    }
    if (context_.interrupt().WaitFor(kSlurmLookPause)) return Cancelled("interrupted");
    waited_at_ = SystemClock().Now();
    return OkStatus();
  }

  // What the wait is for; empty: a coordinator takes over, which takes a second or two.
  std::string News(TimePoint now) const {
    const SlurmJob& job = watch_.job();
    const bool saved = job.outcome && job.leader && job.outcome->run == job.leader->run &&
                       job.outcome->action != "done";
    if (saved)
      return "run " + std::to_string(job.outcome->run) + " of the job ended (" +
             Printable(job.outcome->reason) + "); waiting " +
             (WasRequeued(job) ? "until Slurm starts it again" : "until Slurm requeues or ends it");
    const bool runs = job.slurm.state.empty() || job.slurm.state == "RUNNING";
    if (runs && job.leader && now - waiting_since_ > kPerhapsUnreachable)
      return "the coordinator at " + job.leader->grpc +
             " does not answer; if this machine cannot reach the job's nodes, follow the job from "
             "one of them: srun --overlap --jobid=" +
             std::to_string(job.slurm.id) + " -N1 -n1 muster slurm attach " + ShellWord(name_);
    if (runs) return "";
    return "the job is " + job.slurm.state + " in Slurm" +
           (job.slurm.reason.empty() ? "" : " (" + Printable(job.slurm.reason) + ")") +
           "; waiting until it runs";
  }

  // The supervisors may leave the requeue to Slurm; then a pending job shows it.
  static bool WasRequeued(const SlurmJob& job) {
    return job.outcome->action != "left" || job.slurm.state == "PENDING";
  }

  Result<std::string> AwaitJob(const Notice& notice) {
    for (;;) {
      auto id = JobOfAllocation(client_);
      if (id.ok()) return id;
      const StatusCode code = id.status().code();
      if (code != StatusCode::kUnavailable && code != StatusCode::kDeadlineExceeded &&
          code != StatusCode::kNotFound)
        return id;
      client_.Disconnect();
      MUSTER_RETURN_IF_ERROR(AwaitCoordinator(notice));
    }
  }

  static std::string HowItEnded(const SlurmJob& job) {
    if (job.outcome) return job.outcome->action == "done" ? job.outcome->reason : OutcomeText(job);
    return job.slurm.state.empty() ? "" : "Slurm reports " + job.slurm.state;
  }

  CommandResult Ended(const Status& status) {
    Terminal& terminal = context_.terminal;
    if (end_) {
      const std::string how = HowItEnded(watch_.job());
      terminal.err << "the job ended" << (how.empty() ? "" : ": " + Printable(how)) << "\n";
      return *end_;
    }
    if (!context_.interrupt().requested()) return status;
    terminal.err << "detached; the job continues. To attach again: muster slurm attach "
                 << ShellWord(name_) << "\n";
    return kExitInterrupted;
  }

  CommandContext& context_;
  const std::string name_;
  SlurmWatch watch_;
  AllocationAccess access_;
  ClusterClient client_;
  TimePoint waited_at_{};  // the end of the last wait
  TimePoint waiting_since_{};
  std::string reported_;
  std::optional<int> end_;
};

}  // namespace

CommandResult FollowSlurmJob(CommandContext& context, const slurm::SlurmCommands& commands,
                             const std::string& job, const std::string& state_dir) {
  return Follower(context, commands, job, state_dir).Run();
}

CommandResult AttachToSlurmJob(CommandContext& context, const slurm::SlurmCommands& commands,
                               const std::string& job, const std::string& state_dir) {
  MUSTER_ASSIGN_OR_RETURN(const SlurmJob found,
                          FindSlurmJob(commands, CurrentUser(), job, state_dir));
  std::string dir = found.state_dir;
  if (dir.empty()) {
    MUSTER_ASSIGN_OR_RETURN(dir, StateDirOf(commands, CurrentUser(), job));
  }
  // A number, so that a newer job of the same name does not take over.
  return FollowSlurmJob(context, commands, found.slurm.id == 0 ? job : found.slurm.ref().text(),
                        dir);
}

CommandResult WaitForSlurmJob(CommandContext& context, const slurm::SlurmCommands& commands,
                              std::uint64_t id, const std::string& state_dir) {
  SlurmWatch watch(commands, std::to_string(id), state_dir);
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const std::optional<int> end, watch.Look());
    if (end) return *end;
    if (context.interrupt().WaitFor(kSlurmLookPause)) {
      context.terminal.err << "the job continues; to see its state: muster slurm status " << id
                           << "\n";
      return kExitInterrupted;
    }
  }
}

}  // namespace muster
