// attach: following a job from the login node, over takeovers of its coordinator and over requeues.

#include <utility>

#include "cli/commands/slurm.h"
#include "cli/exit_code.h"
#include "cli/slurm/allocation_access.h"
#include "cli/slurm/allocation_report.h"
#include "cli/slurm/slurm_watch.h"

namespace muster {
namespace {

// After so long without any wait a coordinator has been lost anew.
constexpr Duration kLostAnew = std::chrono::seconds(30);
// No takeover takes so long.
constexpr Duration kPerhapsUnreachable = std::chrono::seconds(20);

class Follower {
 public:
  Follower(CommandContext& context, const slurm::SlurmCommands& commands, std::string job,
           const std::string& state_dir)
      : context_(context),
        name_(std::move(job)),
        watch_(commands, name_, state_dir),
        door_(state_dir, CurrentUser()),
        client_(context.dir(), context.interrupt(), [this] { return door_.Find(); }) {}

  CommandResult Run() {
    const auto tell = [this](const std::string& text) { context_.terminal.err << text << "\n"; };
    const auto id = AwaitJob(tell);
    if (!id.ok()) return Ended(id.status());
    CommandContext own{client_, context_.terminal, context_.output};
    AttachOptions options;
    options.job = *id;
    options.attach_again = "muster slurm attach " + ShellWord(name_);
    options.await_coordinator = [this](const Notice& notice) { return AwaitCoordinator(notice); };
    CommandResult result = RunAttach(own, options);
    return result.ok() ? result : Ended(result.status());
  }

 private:
  using Notice = std::function<void(const std::string&)>;

  // Called while no coordinator answers; each time it waits a little.
  Status AwaitCoordinator(const Notice& notice) {
    const TimePoint now = SystemClock().Now();
    if (now - waited_at_ > kLostAnew) {
      watch_.AskNow();
      waiting_since_ = now;
    }
    MUSTER_ASSIGN_OR_RETURN(end_, watch_.Look());
    if (end_) return Aborted("the job has ended");
    if (const std::string news = News(now); !news.empty() && news != told_) {
      notice(news);
      told_ = news;
    }
    if (context_.interrupt().WaitFor(kSlurmLookPause)) return Cancelled("interrupted");
    waited_at_ = SystemClock().Now();
    return OkStatus();
  }

  // What it is waited for; empty: for a coordinator that takes over, which takes a second or two.
  std::string News(TimePoint now) const {
    const SlurmJob& job = watch_.job();
    const bool saved = job.outcome && job.leader && job.outcome->run == job.leader->run &&
                       job.outcome->action != "done";
    if (saved)
      return "run " + std::to_string(job.outcome->run) + " of the job is over (" +
             Printable(job.outcome->reason) + "); waiting " +
             (WasRequeued(job) ? "until Slurm starts it again" : "for what Slurm does with it");
    const bool runs = job.slurm.state.empty() || job.slurm.state == "RUNNING";
    if (runs && job.leader && now - waiting_since_ > kPerhapsUnreachable)
      return "the coordinator at " + job.leader->grpc +
             " does not answer; where this machine cannot reach the job's nodes, follow it from "
             "one "
             "of them: srun --overlap --jobid=" +
             std::to_string(job.slurm.id) + " -N1 -n1 muster slurm attach " + ShellWord(name_);
    if (runs) return "";
    return "Slurm has the job " + job.slurm.state +
           (job.slurm.reason.empty() ? "" : " (" + Printable(job.slurm.reason) + ")") +
           "; waiting until it runs";
  }

  // Where the supervisors have left it to Slurm, a job that waits tells.
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
    return job.slurm.state.empty() ? "" : "Slurm has it " + job.slurm.state;
  }

  CommandResult Ended(const Status& status) {
    Terminal& terminal = context_.terminal;
    if (end_) {
      const std::string how = HowItEnded(watch_.job());
      terminal.err << "the job has ended" << (how.empty() ? "" : ": " + Printable(how)) << "\n";
      return *end_;
    }
    if (!context_.interrupt().requested()) return status;
    terminal.err << "detached; the job goes on. Attach again with: muster slurm attach "
                 << ShellWord(name_) << "\n";
    return kExitInterrupted;
  }

  CommandContext& context_;
  const std::string name_;
  SlurmWatch watch_;
  AllocationAccess door_;
  ClusterClient client_;
  TimePoint waited_at_{};  // the end of the last wait
  TimePoint waiting_since_{};
  std::string told_;
  std::optional<int> end_;
};

}  // namespace

CommandResult FollowSlurmJob(CommandContext& context, const slurm::SlurmCommands& commands,
                             const std::string& job, const std::string& state_dir) {
  return Follower(context, commands, job, state_dir).Run();
}

CommandResult RunSlurmAttach(CommandContext& context, const slurm::SlurmCommands& commands,
                             const SlurmAttachOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const SlurmJob job,
                          FindSlurmJob(commands, CurrentUser(), options.job, options.state));
  std::string state_dir = job.state_dir;
  if (state_dir.empty()) {
    MUSTER_ASSIGN_OR_RETURN(state_dir, StateDirOf(commands, CurrentUser(), options.job));
  }
  // A number, so that a newer job of the same name does not take over.
  const std::string name = job.slurm.id == 0 ? options.job : job.slurm.ref().text();
  return FollowSlurmJob(context, commands, name, state_dir);
}

}  // namespace muster
