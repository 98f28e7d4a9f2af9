#include "cli/follow/follow_job.h"

#include <unistd.h>

#include <algorithm>

#include "cli/base/exit_code.h"
#include "cli/base/terminal.h"
#include "cli/follow/reconnect.h"
#include "cli/jobs/job_json.h"
#include "cli/jobs/progress_line.h"
#include "common/job_spec/parse.h"

namespace muster {
namespace {

constexpr int kHistoryShown = 20;

// Watches until `on_update` returns false, over restarts of the coordinator. `await_coordinator`,
// where there is one, decides how long to wait for those.
Status WatchToEnd(CommandContext& context, v1::WatchRequest request, TimePoint deadline,
                  const std::function<bool(const v1::WatchUpdate&)>& on_update,
                  const std::function<void(const std::string&)>& on_notice,
                  const std::function<Status()>& await_coordinator = nullptr) {
  bool done = false;
  Reconnect reconnect(context, on_notice);
  for (;;) {
    const Status status =
        context.client.Watch(request, deadline, [&](const v1::WatchUpdate& update) {
          reconnect.Answered();
          for (const auto& event : update.events())
            request.set_after_seq(std::max(request.after_seq(), event.seq()));
          // An id, so that a newer job of the same name does not take over.
          request.set_job(update.job().id());
          done = !on_update(update);
          return !done;
        });
    if (done) return OkStatus();
    if (!await_coordinator) {
      MUSTER_RETURN_IF_ERROR(reconnect.Pause(status, deadline));
      continue;
    }
    if (!reconnect.Lost(status)) return status;
    MUSTER_RETURN_IF_ERROR(await_coordinator());
  }
}

std::int64_t LoggingSteps(const v1::Job& job) {
  const auto spec = ParseJobSpec(job.spec_yaml());
  return spec.ok() && spec->train ? spec->train->logging_every : 25;
}

std::string AttachCommand(const CommandContext& context, const std::string& job) {
  return "muster attach " + ShellWord(job) + " " + SameCluster(context);
}

// Called for each line, because a terminal may be resized.
std::function<int()> ColumnsOf(int fd, const Terminal& terminal) {
  return [fd, otherwise = terminal.columns] {
    const auto size = FindTerminalSize(fd);
    return size ? size->columns : otherwise;
  };
}

class Attachment {
 public:
  Attachment(const CommandContext& context, std::ostream& out, bool live)
      : printer_(out, {.live = live,
                       .color = live && context.terminal.color,
                       .columns = ColumnsOf(STDOUT_FILENO, context.terminal)}) {}

  bool OnUpdate(const v1::WatchUpdate& update) {
    const v1::Job& job = update.job();
    if (state_ == v1::JOB_STATE_UNSPECIFIED) {
      printer_.OnNotice("job " + job.id() + "  " + job.name());
      if (!job.spec_yaml().empty()) printer_.set_line_every_steps(LoggingSteps(job));
      ShowHistory(update);
    } else {
      for (const auto& event : update.events()) printer_.OnEvent(event);
    }
    state_ = job.state();
    id_ = job.id();
    printer_.OnJob(job, SystemClock().Now());
    if (!IsTerminal(state_)) return true;
    printer_.Finish();
    if (!job.reason().empty() && state_ != v1::JOB_STATE_SUCCEEDED)
      printer_.OnNotice(StateWord(state_) + ": " + Printable(job.reason()));
    return false;
  }

  void OnNotice(const std::string& text) { printer_.OnNotice(text); }
  void Finish() { printer_.Finish(); }
  v1::JobState state() const { return state_; }
  const std::string& id() const { return id_; }

 private:
  void ShowHistory(const v1::WatchUpdate& update) {
    const int first = std::max(0, update.events_size() - kHistoryShown);
    if (first > 0)
      printer_.OnNotice(std::to_string(first) + " earlier events: muster events " +
                        update.job().id());
    for (int i = first; i < update.events_size(); ++i) printer_.OnEvent(update.events(i));
  }

  ProgressPrinter printer_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string id_;
};

// What `muster wait` was asked to wait for.
bool IsReached(const v1::Job& job, const std::optional<std::int64_t>& step) {
  if (IsTerminal(job.state())) return true;
  if (!step) return false;
  return *step == 0 ? job.state() == v1::JOB_STATE_RUNNING : job.step() >= *step;
}

// "job 7f3a9c1e2b running at step 12", "job 7f3a9c1e2b failed: rank 0 exited with 3".
std::string Reached(const v1::Job& job) {
  std::string out = "job " + job.id() + " " + StateWord(job.state());
  if (!IsTerminal(job.state()) && job.step() > 0) out += " at step " + std::to_string(job.step());
  return out + (job.reason().empty() ? "" : ": " + Printable(job.reason()));
}

}  // namespace

CommandResult AttachToJob(CommandContext& context, const AttachOptions& options) {
  Terminal& terminal = context.terminal;
  const bool jsonl = context.output == OutputFormat::kJsonl;
  Attachment attachment(context, context.for_people() ? terminal.out : terminal.err,
                        context.for_people() && terminal.out_is_tty);
  v1::WatchRequest request;
  request.set_job(options.job);
  v1::Job job;
  const auto notice = [&](const std::string& text) { attachment.OnNotice(text); };
  std::function<Status()> await;
  if (options.await_coordinator) await = [&] { return options.await_coordinator(notice); };
  const Status status = WatchToEnd(
      context, request, TimePoint::max(),
      [&](const v1::WatchUpdate& update) {
        job = update.job();
        if (jsonl) {
          PrintStructured(terminal.out, OutputFormat::kJsonl, JobJson(job), "id");
          terminal.out.flush();
        }
        return attachment.OnUpdate(update) && terminal.out.good();
      },
      notice, await);
  attachment.Finish();
  if (!terminal.out) return kExitSuccess;  // reported where all output ends
  if (status.ok()) {
    // The other formats are one document: the job as it ended.
    if (!context.for_people() && !jsonl)
      PrintStructured(terminal.out, context.output, JobJson(job), "id");
    return ExitCodeOf(attachment.state());
  }
  if (!context.interrupt().requested()) return status;
  const std::string again =
      AttachCommand(context, attachment.id().empty() ? options.job : attachment.id());
  terminal.err << "detached; the job continues. To attach again: "
               << (options.attach_again.empty() ? again : options.attach_again) << "\n";
  return kExitInterrupted;
}

CommandResult WaitForJob(CommandContext& context, const WaitOptions& options) {
  v1::WatchRequest request;
  request.set_job(options.job);
  const TimePoint deadline =
      options.timeout ? SystemClock().Now() + *options.timeout : TimePoint::max();
  Terminal& terminal = context.terminal;
  ProgressPrinter progress(terminal.err, {.live = terminal.err_is_tty,
                                          .columns = ColumnsOf(STDERR_FILENO, terminal),
                                          .states_only = true});
  v1::Job job;
  if (options.timeout) {
    // However short the time is, the answer says what is true.
    MUSTER_ASSIGN_OR_RETURN(job, context.client.GetJob(options.job));
    request.set_job(job.id());
  }
  const auto on_update = [&](const v1::WatchUpdate& update) {
    job = update.job();
    if (options.show_progress) progress.OnJob(job, SystemClock().Now());
    return !IsReached(job, options.step);
  };
  const auto on_notice = [&](const std::string& text) {
    if (options.show_progress) progress.OnNotice(text);
  };
  const Status status = IsReached(job, options.step)
                            ? OkStatus()
                            : WatchToEnd(context, request, deadline, on_update, on_notice);
  progress.Finish();
  if (!status.ok() && context.interrupt().requested()) {
    terminal.err << "the job continues. To follow it: "
                 << AttachCommand(context, job.id().empty() ? options.job : job.id()) << "\n";
    return kExitInterrupted;
  }
  if (status.code() == StatusCode::kDeadlineExceeded)
    return DeadlineExceeded("job " + options.job + " did not " +
                            (options.step ? "come so far" : "end") + " within the timeout; it is " +
                            StateWord(job.state()) +
                            "\n  next: " + AttachCommand(context, options.job));
  MUSTER_RETURN_IF_ERROR(status);
  if (!context.for_people())
    PrintStructured(terminal.out, context.output, JobJson(job), "id");
  else
    terminal.out << Reached(job) << "\n";
  return IsTerminal(job.state()) ? ExitCodeOf(job.state()) : kExitSuccess;
}

}  // namespace muster
