// plan: what would become of a job file if it was submitted now, and the memory that it takes.

#include <unistd.h>

#include <optional>

#include "cli/base/exit_code.h"
#include "cli/base/processes.h"
#include "cli/client/ready_job.h"
#include "cli/commands/job_file_flags.h"
#include "cli/commands/verb.h"
#include "cli/jobs/explanation.h"
#include "common/process/run_child.h"

namespace muster::verbs {
namespace {

constexpr char kTrainer[] = "muster-trainer";
constexpr std::size_t kMostOutput = 1 << 20;

std::vector<std::string> WholeEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = ::environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

// What `muster-trainer plan` prints, which is installed beside this program.
Result<std::string> MemoryPlan(const JobFileOptions& job, const std::string& device, bool json) {
  if (job.file == "-") return FailedPrecondition("it needs a file, not standard input");
  MUSTER_ASSIGN_OR_RETURN(const std::string directory, OwnBinaryDirectory());
  const std::string trainer = directory + "/" + kTrainer;
  if (::access(trainer.c_str(), X_OK) != 0)
    return NotFound(std::string(kTrainer) + " is not installed beside muster");
  RunChildOptions child{.max_output = kMostOutput};
  child.spawn.environment = WholeEnvironment();
  child.spawn.argv = {trainer, "plan", job.file};
  const auto add = [&child](const char* flag, const std::string& value) {
    if (!value.empty()) child.spawn.argv.insert(child.spawn.argv.end(), {flag, value});
  };
  add("--device", device);
  add("--accelerate-config", job.accelerate_config);
  for (const std::string& override : job.overrides) add("--set", override);
  if (json) add("-o", "json");
  MUSTER_ASSIGN_OR_RETURN(const ChildOutcome outcome, RunChild(child));
  constexpr int kDoesNotFit = 1;
  if (outcome.ok() || outcome.exit == ProcessExit{kDoesNotFit, 0}) return outcome.output;
  return FailedPrecondition(outcome.Describe());
}

}  // namespace

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
    v1::ExplainJobRequest request;
    request.set_spec_yaml(ready.yaml);
    MUSTER_ASSIGN_OR_RETURN(const v1::ExplainJobResponse answer,
                            context.client.ExplainJob(request));
    std::optional<Result<std::string>> memory;
    if (ready.spec.train) memory = MemoryPlan(job, device, !context.for_people());
    Json json = ExplanationJson(answer);
    json["name"] = ready.spec.name;
    json["memory"] = memory && memory->ok()
                         ? Json::parse(memory->value(), nullptr, /*allow_exceptions=*/false)
                         : Json(nullptr);
    if (!PrintStructured(terminal.out, context.output, json, "name")) {
      terminal.out << PlacementText(answer);
      if (memory && memory->ok()) terminal.out << "\nMemory of its ranks\n" << memory->value();
    }
    if (memory && !memory->ok())
      terminal.err << "muster: no plan of its memory: " << memory->status().message() << "\n";
    if (context.for_people())
      terminal.err << "next: muster submit " << ShellWord(job.file) << " --check-index "
                   << answer.index() << " " << SameCluster(context) << "\n";
    return kExitSuccess;
  }
};

template void AddVerb<Plan>(CommandLine& line);

}  // namespace muster::verbs
