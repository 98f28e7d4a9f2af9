// slurm status: what Slurm and the job's own coordinator report.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/slurm/allocation_report.h"
#include "cli/slurm/slurm_job.h"

namespace muster::verbs {
namespace {

Json TimeOf(const std::optional<std::int64_t>& unix_seconds) {
  return unix_seconds ? Json(IsoTime(*unix_seconds * 1000)) : Json(nullptr);
}

Json SlurmJobJson(const SlurmJob& job, const std::optional<AllocationReport>& report) {
  Json json = {{"slurm_job_id", job.slurm.id == 0 ? Json(nullptr) : Json(job.slurm.id)},
               {"slurm_job", TextOrNull(job.slurm.shown_id)},
               {"name", TextOrNull(job.slurm.name)},
               {"slurm_state", TextOrNull(job.slurm.state)},
               {"reason", TextOrNull(job.slurm.reason)},
               {"nodes", TextOrNull(job.slurm.nodes)},
               {"batch_host", TextOrNull(job.slurm.batch_host)},
               {"start_time", TimeOf(job.slurm.start_unix_seconds)},
               {"end_time", TimeOf(job.slurm.end_unix_seconds)},
               {"state_directory", TextOrNull(job.state_dir)},
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

struct SlurmStatus {
  static constexpr char kName[] = "status";
  static constexpr char kSummary[] = "Show the state of jobs in Slurm and in their coordinators";

  std::string job;
  std::string state;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", job, kSlurmJobHelp);
    flags.Add("--state DIR", state, kSlurmStateHelp);
  }

  CommandResult Run(CommandContext& context) const {
    const slurm::SlurmCommands commands = UserSlurmCommands();
    Terminal& terminal = context.terminal;
    Table table(
        {"SLURM JOB", "NAME", "SLURM STATE", "NODES", "REASON", "COORDINATOR", "JOB", "OUTCOME"});
    if (!job.empty()) {
      MUSTER_ASSIGN_OR_RETURN(const SlurmJob found,
                              FindSlurmJob(commands, CurrentUser(), job, state));
      const auto report = AskAllocation(found, context.dir(), context.interrupt());
      if (PrintStructured(terminal.out, context.output, SlurmJobJson(found, report), "name"))
        return kExitSuccess;
      AddRow(table, found, report);
      table.Print(terminal.out, terminal.color);
      return kExitSuccess;
    }
    MUSTER_ASSIGN_OR_RETURN(const std::vector<SlurmJob> jobs,
                            ListSlurmJobs(commands, CurrentUser()));
    Json all = Json::array();
    for (const SlurmJob& each : jobs) {
      const auto report = AskAllocation(each, context.dir(), context.interrupt());
      all.push_back(SlurmJobJson(each, report));
      AddRow(table, each, report);
    }
    if (!PrintStructured(terminal.out, context.output, all, "name"))
      table.Print(terminal.out, terminal.color);
    return kExitSuccess;
  }
};

template void AddVerb<SlurmStatus>(CommandLine& line);

}  // namespace muster::verbs
