#include <utility>

#include "cli/commands/slurm.h"
#include "cli/exit_code.h"
#include "cli/slurm/allocation_report.h"
#include "cli/slurm/slurm_job.h"
#include "cli/slurm/slurm_watch.h"

namespace muster {
namespace {

Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json TimeOf(const std::optional<std::int64_t>& unix_seconds) {
  return unix_seconds ? Json(IsoTime(*unix_seconds * 1000)) : Json(nullptr);
}

Json SlurmJobJson(const SlurmJob& job, const std::optional<AllocationReport>& report) {
  Json json = {{"slurm_job_id", job.slurm.id == 0 ? Json(nullptr) : Json(job.slurm.id)},
               {"slurm_job", OrNull(job.slurm.shown_id)},
               {"name", OrNull(job.slurm.name)},
               {"slurm_state", OrNull(job.slurm.state)},
               {"reason", OrNull(job.slurm.reason)},
               {"nodes", OrNull(job.slurm.nodes)},
               {"batch_host", OrNull(job.slurm.batch_host)},
               {"start_time", TimeOf(job.slurm.start_unix_seconds)},
               {"end_time", TimeOf(job.slurm.end_unix_seconds)},
               {"state_directory", OrNull(job.state_dir)},
               {"leader", nullptr},
               {"outcome", nullptr},
               {"job", report ? ReportJson(*report) : Json(nullptr)}};
  if (job.leader)
    json["leader"] = {{"run", job.leader->run},
                      {"epoch", job.leader->epoch},
                      {"node", job.leader->node},
                      {"grpc", job.leader->grpc}};
  if (job.outcome)
    json["outcome"] = {{"run", job.outcome->run},
                       {"exit_code", job.outcome->exit_code},
                       {"action", job.outcome->action},
                       {"reason", job.outcome->reason}};
  return json;
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string LeaderText(const SlurmJob& job) {
  if (!job.leader) return "-";
  return job.leader->node + " (epoch " + std::to_string(job.leader->epoch) + ")";
}

void AddRow(Table& table, const SlurmJob& job, const std::optional<AllocationReport>& report) {
  table.Add({job.slurm.id == 0 ? "-" : job.slurm.shown_id, OrDash(job.slurm.name),
             OrDash(job.slurm.state), OrDash(job.slurm.nodes), OrDash(job.slurm.reason),
             LeaderText(job), report ? Printable(ReportText(*report)) : "-",
             job.outcome ? Printable(OutcomeText(job)) : "-"});
}

}  // namespace

CommandResult RunSlurmStatus(CommandContext& context, const slurm::SlurmCommands& commands,
                             const SlurmStatusOptions& options) {
  Terminal& terminal = context.terminal;
  Table table(
      {"SLURM JOB", "NAME", "SLURM STATE", "NODES", "REASON", "COORDINATOR", "JOB", "OUTCOME"});
  if (!options.job.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const SlurmJob job,
                            FindSlurmJob(commands, CurrentUser(), options.job, options.state));
    const auto report = AskAllocation(job, context.dir(), context.interrupt());
    if (PrintStructured(terminal.out, context.output, SlurmJobJson(job, report), "name"))
      return kExitSuccess;
    AddRow(table, job, report);
    table.Print(terminal.out, terminal.color);
    return kExitSuccess;
  }
  MUSTER_ASSIGN_OR_RETURN(const std::vector<SlurmJob> jobs, ListSlurmJobs(commands, CurrentUser()));
  Json all = Json::array();
  for (const SlurmJob& job : jobs) {
    const auto report = AskAllocation(job, context.dir(), context.interrupt());
    all.push_back(SlurmJobJson(job, report));
    AddRow(table, job, report);
  }
  if (!PrintStructured(terminal.out, context.output, all, "name"))
    table.Print(terminal.out, terminal.color);
  return kExitSuccess;
}

CommandResult WaitForSlurmJob(CommandContext& context, const slurm::SlurmCommands& commands,
                              std::uint64_t id, const std::string& state_dir) {
  SlurmWatch watch(commands, std::to_string(id), state_dir);
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const std::optional<int> end, watch.Look());
    if (end) return *end;
    if (context.interrupt().WaitFor(kSlurmLookPause)) {
      context.terminal.err << "the job goes on; muster slurm status " << id << " shows it\n";
      return kExitInterrupted;
    }
  }
}

CommandResult RunSlurmRequeue(CommandContext& context, const slurm::SlurmCommands& commands,
                              const SlurmRequeueOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const SlurmJob job,
                          FindSlurmJob(commands, CurrentUser(), options.job, ""));
  const bool running = job.slurm.state == "RUNNING";
  // The supervisors save, stop, and have the job requeued themselves.
  const Status done = running && !options.now ? commands.Signal(job.slurm.ref(), "USR2")
                                              : commands.Requeue(job.slurm.ref());
  if (!done.ok()) return done;
  Terminal& terminal = context.terminal;
  const Json json = {{"slurm_job_id", job.slurm.id},
                     {"slurm_job", job.slurm.shown_id},
                     {"name", job.slurm.name},
                     {"requeue", running && !options.now ? "after saving" : "now"}};
  if (!PrintStructured(terminal.out, context.output, json, "name"))
    terminal.out << "job " << job.slurm.ref().text()
                 << (running && !options.now ? " saves its state and is then requeued\n"
                                             : " is requeued\n");
  return kExitSuccess;
}

}  // namespace muster
