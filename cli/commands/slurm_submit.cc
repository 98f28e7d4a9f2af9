#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/commands/slurm.h"
#include "cli/exit_code.h"
#include "cli/processes.h"
#include "cli/ready_job.h"
#include "cli/slurm/slurm_job.h"
#include "common/slurm/sbatch_script.h"
#include "common/slurm/submission.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRandomKeyDigits = 12;
// What a rendered script has in the place of a random one, so that two of them can be compared.
constexpr char kRenderedKey[] = "KEY";

JobFileOptions FileOptions(const SlurmSubmitOptions& options) {
  JobFileOptions file{.file = options.file,
                      .name = options.name,
                      .priority = std::nullopt,
                      .overrides = options.overrides,
                      .accelerate_config = options.accelerate_config};
  if (options.spares)
    file.overrides.push_back("resources.spares=" + std::to_string(*options.spares));
  return file;
}

Result<std::string> KeyOf(const SlurmSubmitOptions& options) {
  if (!options.key.empty()) return options.key;
  if (options.render) return std::string(kRenderedKey);
  MUSTER_ASSIGN_OR_RETURN(const std::string key, RandomKey());
  return key.substr(0, kRandomKeyDigits);
}

// In a container the path of this machine means nothing.
std::string WorkerOf(const SlurmSubmitOptions& options, const slurm::SbatchOptions& sbatch) {
  if (!options.worker.empty()) return options.worker;
  const bool contained = !options.apptainer_image.empty() || !sbatch.step().empty();
  const auto own = OwnBinaryDirectory();
  std::error_code error;
  if (!contained && own.ok() && fs::exists(*own + "/muster-worker", error))
    return *own + "/muster-worker";
  return "muster-worker";
}

Result<slurm::ScriptRequest> RequestOf(const SlurmSubmitOptions& options, const JobSpec& spec) {
  slurm::ScriptRequest request;
  request.spec = spec;
  MUSTER_ASSIGN_OR_RETURN(request.key, KeyOf(options));
  MUSTER_ASSIGN_OR_RETURN(request.options, slurm::SbatchOptions::Parse(options.sbatch));
  request.worker = WorkerOf(options, request.options);
  request.worker_arguments = options.worker_arguments;
  request.apptainer_image = options.apptainer_image;
  request.apptainer_options = options.apptainer_options;
  request.signal_lead_seconds = options.signal_lead_seconds;
  request.max_requeues = options.max_requeues;
  return request;
}

// All that a second submit with the same key must say in the same way, but the job itself.
std::string RequestText(const SlurmSubmitOptions& options) {
  const nlohmann::json request = {{"sbatch", options.sbatch},
                                  {"worker", options.worker},
                                  {"worker_arguments", options.worker_arguments},
                                  {"apptainer_image", options.apptainer_image},
                                  {"apptainer_options", options.apptainer_options},
                                  {"signal_lead_seconds", options.signal_lead_seconds},
                                  {"max_requeues", options.max_requeues}};
  return request.dump(1) + "\n";
}

// sbatch takes it before what the script says.
Status CheckEnvironment(const slurm::Environment& environment) {
  const auto signal = environment.find("SBATCH_SIGNAL");
  if (signal == environment.end() || signal->second.empty()) return OkStatus();
  return slurm::CheckStopSignal(signal->second).WithContext("environment variable SBATCH_SIGNAL");
}

void PrintSubmitted(CommandContext& context, const slurm::SubmissionPlan& plan,
                    const slurm::SubmittedJob& job) {
  const Json json = {
      {"slurm_job_id", job.slurm_job_id},
      {"name", plan.name},
      {"key", plan.key},
      {"existed", job.existed},
      {"directory", plan.places.submission},
      {"state_directory", plan.places.state_prefix + std::to_string(job.slurm_job_id)}};
  Terminal& terminal = context.terminal;
  if (context.output == OutputFormat::kName) {
    terminal.out << job.slurm_job_id << "\n";
  } else if (!PrintStructured(terminal.out, context.output, json, "name")) {
    Table table({"SLURM JOB", "NAME", "KEY"});
    table.Add({std::to_string(job.slurm_job_id), plan.name, plan.key});
    table.Print(terminal.out, terminal.color);
  }
  terminal.out.flush();
  if (job.existed) terminal.err << "an earlier submit with this key made the job\n";
}

}  // namespace

CommandResult RunSlurmSubmit(CommandContext& context, const slurm::SlurmCommands& commands,
                             const SlurmSubmitOptions& options) {
  Terminal& terminal = context.terminal;
  MUSTER_ASSIGN_OR_RETURN(const ReadyJob job, PrepareJob(FileOptions(options), terminal.err));
  MUSTER_ASSIGN_OR_RETURN(const slurm::ScriptRequest request, RequestOf(options, job.spec));
  MUSTER_ASSIGN_OR_RETURN(std::string script, slurm::RenderScript(request));
  if (options.render) {
    terminal.out << script;
    return kExitSuccess;
  }
  MUSTER_RETURN_IF_ERROR(CheckEnvironment(slurm::CurrentEnvironment()));
  WarnOfMissingFiles(job.spec, terminal.err);
  const slurm::SubmissionPlan plan{.name = job.spec.name,
                                   .key = request.key,
                                   .user = CurrentUser(),
                                   .yaml = job.yaml,
                                   .request = RequestText(options),
                                   .script = std::move(script),
                                   .places = slurm::PlacesOf(job.spec, request.key)};
  MUSTER_ASSIGN_OR_RETURN(const slurm::SubmittedJob submitted, slurm::SubmitOnce(commands, plan));
  PrintSubmitted(context, plan, submitted);
  const std::string state_dir = plan.places.state_prefix + std::to_string(submitted.slurm_job_id);
  if (options.attach)
    return FollowSlurmJob(context, commands, std::to_string(submitted.slurm_job_id), state_dir);
  if (!options.wait) {
    if (context.output == OutputFormat::kTable)
      terminal.err << "next: muster slurm attach " << submitted.slurm_job_id << "\n";
    return kExitSuccess;
  }
  return WaitForSlurmJob(context, commands, submitted.slurm_job_id, state_dir);
}

}  // namespace muster
