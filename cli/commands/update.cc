// update: changes how a job is scheduled, also while it runs.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "common/job_spec/job_spec.h"
#include "common/job_spec/job_times.h"

namespace muster::verbs {
namespace {

constexpr char kNone[] = "none";

Result<std::int64_t> TimeLimitSeconds(const std::string& text) {
  if (text == kNone) return 0;
  const std::optional<std::int64_t> seconds = ParseSeconds(text);
  if (seconds && *seconds > 0) return *seconds;
  return InvalidArgument(
      "--time-limit: expected a duration such as 12h, 90m or 1h30m, or none, "
      "got '" +
      text + "'");
}

Result<std::int64_t> BeginUnixMs(const std::string& text) {
  if (text == kNone || text == "now") return 0;
  const Result<std::int64_t> begin = ResolveBegin(text, SystemClock().UnixMillis());
  if (!begin.ok()) return begin.status().WithContext("--begin");
  return *begin;
}

}  // namespace

struct Update {
  static constexpr char kName[] = "update";
  static constexpr char kSummary[] = "Change a job's queue, class, priority, time limit, or begin";

  std::string job;
  std::string queue;
  std::string priority_class;
  std::optional<int> priority;
  std::string time_limit;
  std::string begin;
  bool force = false;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", job, kJobHelp).Required();
    flags.Add("--queue NAME", queue, "Queue to move the job to");
    flags.Add("--class NAME", priority_class, "Priority class");
    flags.Add("--priority N", priority, "Priority within the queue; higher runs first")
        .Range(0, kMaxPriority);
    flags.Add("--time-limit DURATION", time_limit,
              "Time limit from the first launch, such as 12h or 1h30m; none removes it");
    flags.Add("--begin TIME", begin,
              "Do not place the job before: 2026-11-28T06:00 (local time), 2026-11-28T05:00:00Z, "
              "2026-11-28, or now+2h; none removes it");
    flags.Add("--force", force, "Raise the time limit although jobs start later than promised");
    flags.SetFooter("Example: muster update llama-chat --priority 80 --time-limit 24h");
  }

  CommandResult Run(CommandContext& context) const {
    v1::UpdateJobRequest request;
    request.set_job(job);
    if (!queue.empty()) request.set_queue(queue);
    if (!priority_class.empty()) request.set_priority_class(priority_class);
    if (priority) request.set_priority(*priority);
    if (!time_limit.empty()) {
      MUSTER_ASSIGN_OR_RETURN(const std::int64_t seconds, TimeLimitSeconds(time_limit));
      request.set_time_limit_seconds(seconds);
    }
    if (!begin.empty()) {
      MUSTER_ASSIGN_OR_RETURN(const std::int64_t unix_ms, BeginUnixMs(begin));
      request.set_begin_unix_ms(unix_ms);
    }
    request.set_force(force);
    const bool changes = request.has_queue() || request.has_priority_class() ||
                         request.has_priority() || request.has_time_limit_seconds() ||
                         request.has_begin_unix_ms();
    if (!changes)
      return InvalidArgument("nothing to change\n  next: muster update " + ShellWord(job) +
                             " with --queue, --class, --priority, --time-limit or --begin");
    MUSTER_ASSIGN_OR_RETURN(const v1::UpdateJobResponse updated, context.client.UpdateJob(request));
    const std::string& changed = updated.changed();
    PrintState(context, updated.id(), updated.state(),
               changed.empty() ? "; nothing changed" : "; " + Printable(changed),
               {{"changed", TextOrNull(changed)}});
    return kExitSuccess;
  }
};

template void AddVerb<Update>(CommandLine& line);

}  // namespace muster::verbs
