// plan: what would become of a job file if it was submitted now, and the memory that it takes.

#include <optional>

#include "cli/base/exit_code.h"
#include "cli/base/processes.h"
#include "cli/client/ready_job.h"
#include "cli/commands/job_file_flags.h"
#include "cli/commands/memory_plan.h"
#include "cli/commands/verb.h"
#include "cli/jobs/explanation.h"
#include "cli/jobs/timeline.h"

namespace muster::verbs {

struct Plan {
  static constexpr char kName[] = "plan";
  static constexpr char kSummary[] =
      "Show whether and when a job file would start, without submitting it";

  JobFileOptions job;
  std::string device;

  void AddFlags(Flags& flags) {
    AddJobFileFlags(flags, job);
    flags.Add("--device NAME", device,
              "Device for the memory of a train job, as in muster-trainer plan");
    flags.SetFooter("Example: muster plan job.yaml --set resources.nodes=4");
  }

  CommandResult Run(CommandContext& context) const {
    Terminal& terminal = context.terminal;
    MUSTER_ASSIGN_OR_RETURN(const ReadyJob ready, PrepareJob(job, terminal.err));
    if (!ready.spec.train && !device.empty())
      return InvalidArgument(
          "--device is for the memory of a train job, and this job has a command\n"
          "  next: leave --device out");
    v1::ExplainJobRequest request;
    request.set_spec_yaml(ready.yaml);
    MUSTER_ASSIGN_OR_RETURN(const v1::ExplainJobResponse answer,
                            context.client.ExplainJob(request));
    std::optional<Result<std::string>> memory;
    if (ready.spec.train) memory = Memory(ready.spec, context);
    Json json = ExplanationJson(answer);
    json["name"] = ready.spec.name;
    json["memory"] = memory && memory->ok() && !context.for_people() ? Json::parse(memory->value())
                                                                     : Json(nullptr);
    if (!PrintStructured(terminal.out, context.output, json, "name")) {
      terminal.out << PlacementText(answer);
      if (const std::string in = ContainerText(ready.spec.container); !in.empty())
        terminal.out << "\nContainer of its ranks, which each node has to have\n  " << in << "\n";
      if (memory && memory->ok()) terminal.out << "\nMemory of its ranks\n" << memory->value();
    }
    if (memory && !memory->ok())
      terminal.err << "muster: no plan of its memory: " << memory->status().message() << "\n";
    // Standard input is over: there is no command that would submit the same again.
    if (context.for_people() && job.file != "-")
      terminal.err << "next: muster submit " << JobFileWords(job) << " --check-index "
                   << answer.index() << " " << SameCluster(context) << "\n";
    return kExitSuccess;
  }

 private:
  Result<std::string> Memory(const JobSpec& spec, CommandContext& context) const {
    if (device.empty() && spec.resources.device != "cpu")
      return FailedPrecondition(
          "the job file does not say which GPU it is for\n  next: muster plan " +
          JobFileWords(job) + " --device NAME " + SameCluster(context));
    MUSTER_ASSIGN_OR_RETURN(const std::string directory, OwnBinaryDirectory());
    return MemoryPlan(directory + "/muster-trainer", job, device, !context.for_people());
  }
};

template void AddVerb<Plan>(CommandLine& line);

}  // namespace muster::verbs
