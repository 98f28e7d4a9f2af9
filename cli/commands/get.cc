// get, describe, checkpoints, cancel: one look at jobs, or one word to them.

#include "cli/commands/commands.h"
#include "cli/commands/state_line.h"
#include "cli/exit_code.h"
#include "cli/job_json.h"
#include "cli/timeline.h"

namespace muster {
namespace {

std::vector<std::string> JobHeaders(bool wide) {
  std::vector<std::string> headers = {"ID",   "NAME",  "STATE", "GEN", "STEP",
                                      "LOSS", "TOK/S", "ETA",   "AGE"};
  if (wide) headers.insert(headers.end(), {"PRIORITY", "RESTARTS", "OUTPUT", "REASON"});
  return headers;
}

std::vector<std::string> JobRow(const v1::Job& job, bool wide, std::int64_t now_unix_ms) {
  std::string step = std::to_string(job.step());
  if (job.max_steps() > 0) step += "/" + std::to_string(job.max_steps());
  const bool live = !IsTerminal(job.state());
  std::vector<std::string> row = {
      job.id(),
      job.name(),
      StateWord(job.state()),
      std::to_string(job.generation()),
      step,
      HasLoss(job) ? Fixed(job.loss(), 3) : "-",
      job.tokens_per_second() > 0 ? Fixed(job.tokens_per_second(), 0) : "-",
      live && job.eta_seconds() >= 0 ? HumanSeconds(job.eta_seconds()) : "-",
      HumanSeconds(static_cast<double>(now_unix_ms - job.submitted_unix_ms()) / 1000)};
  if (wide)
    row.insert(row.end(), {std::to_string(job.priority()), std::to_string(job.restarts()),
                           job.output_dir(), Printable(job.reason())});
  return row;
}

std::string VerifiedText(const v1::CheckpointInfo& checkpoint) {
  if (!checkpoint.refused().empty()) return "damaged";
  return checkpoint.verified_unix_ms() > 0 ? LocalTime(checkpoint.verified_unix_ms()) : "not yet";
}

}  // namespace

CommandResult RunGet(CommandContext& context, const GetOptions& options) {
  const bool wide = context.output == OutputFormat::kWide;
  Terminal& terminal = context.terminal;
  Table table(JobHeaders(wide));
  const std::int64_t now = SystemClock().UnixMillis();
  if (!options.job.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const v1::Job job, context.client.GetJob(options.job));
    if (PrintStructured(terminal.out, context.output, JobJson(job), "id")) return kExitSuccess;
    table.Add(JobRow(job, wide, now));
  } else {
    MUSTER_ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs, context.client.ListJobs(options.all));
    if (PrintStructured(terminal.out, context.output, JobListJson(jobs), "id")) return kExitSuccess;
    if (jobs.jobs().empty()) terminal.err << "no jobs; next: muster submit FILE\n";
    for (const auto& job : jobs.jobs()) table.Add(JobRow(job, wide, now));
  }
  table.Print(terminal.out, terminal.color);
  return kExitSuccess;
}

CommandResult RunDescribe(CommandContext& context, const std::string& name) {
  MUSTER_ASSIGN_OR_RETURN(const v1::Job job, context.client.GetJob(name));
  Terminal& terminal = context.terminal;
  if (!PrintStructured(terminal.out, context.output, JobJson(job), "id"))
    terminal.out << FormatTimeline(job, context.dir(), SystemClock().UnixMillis());
  return kExitSuccess;
}

CommandResult RunCheckpoints(CommandContext& context, const CheckpointsOptions& options) {
  int exit_code = kExitSuccess;
  if (options.verify) {
    v1::VerifyCheckpointsRequest request;
    request.set_job(options.job);
    MUSTER_ASSIGN_OR_RETURN(const v1::VerifyCheckpointsResponse found,
                            context.client.VerifyCheckpoints(request));
    if (found.damaged_size() > 0) exit_code = kExitError;
  }
  MUSTER_ASSIGN_OR_RETURN(const v1::Job job, context.client.GetJob(options.job));
  Terminal& terminal = context.terminal;
  Json list = Json::array();
  for (const auto& checkpoint : job.checkpoints()) list.push_back(CheckpointJson(checkpoint));
  if (PrintStructured(terminal.out, context.output, list, "directory")) return exit_code;
  if (job.checkpoints().empty()) terminal.err << "job " << job.id() << " has no checkpoints yet\n";
  Table table({"STEP", "GEN", "RANKS", "SIZE", "EVAL LOSS", "COMMITTED", "VERIFIED", "DIRECTORY"});
  for (const auto& checkpoint : job.checkpoints())
    table.Add({std::to_string(checkpoint.step()), std::to_string(checkpoint.generation()),
               std::to_string(checkpoint.world_size()), HumanBytes(CheckpointBytes(checkpoint)),
               checkpoint.has_eval_loss() ? Fixed(checkpoint.eval_loss(), 4) : "-",
               LocalTime(checkpoint.committed_unix_ms()), VerifiedText(checkpoint),
               job.output_dir() + "/checkpoints/" + checkpoint.directory()});
  table.Print(terminal.out, terminal.color);
  for (const auto& checkpoint : job.checkpoints())
    if (!checkpoint.refused().empty())
      terminal.err << checkpoint.directory() << ": " << Printable(checkpoint.refused()) << "\n";
  return exit_code;
}

CommandResult RunCancel(CommandContext& context, const CancelOptions& options) {
  v1::CancelRequest request;
  request.set_job(options.job);
  request.set_reason(options.reason);
  MUSTER_ASSIGN_OR_RETURN(const v1::CancelResponse response, context.client.Cancel(request));
  PrintStateLine(
      context,
      {.kind = "job", .key = "id", .name = response.id(), .state = StateWord(response.state())});
  return kExitSuccess;
}

}  // namespace muster
