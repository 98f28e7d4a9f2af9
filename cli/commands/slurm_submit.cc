// slurm submit and render: a job as a batch script, for sbatch or to read.

#include <filesystem>
#include <optional>
#include <utility>

#include "cli/base/exit_code.h"
#include "cli/base/processes.h"
#include "cli/client/ready_job.h"
#include "cli/commands/verb.h"
#include "cli/slurm/follow_slurm_job.h"
#include "cli/slurm/slurm_job.h"
#include "common/slurm/sbatch_script.h"
#include "common/slurm/submission.h"

namespace muster::verbs {

struct ScriptOptions {
  JobFileOptions job;
  std::string key;            // empty: a random one
  std::optional<int> spares;  // none: the job file's
  bool render = false;        // print the script only
  bool wait = false;
  bool attach = false;
  std::string worker;  // empty: beside this program where it is, else by its name in PATH
  std::vector<std::string> worker_arguments;
  std::string apptainer_image;
  std::vector<std::string> apptainer_options;
  int signal_lead_seconds = 180;
  int max_requeues = 100;
  std::vector<std::string> sbatch;  // options for sbatch
};

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRandomKeyDigits = 12;
// The key in a rendered script, so that two of them can be compared.
constexpr char kRenderedKey[] = "KEY";

JobFileOptions WithSpares(const ScriptOptions& options) {
  JobFileOptions file = options.job;
  if (options.spares)
    file.overrides.push_back("resources.spares=" + std::to_string(*options.spares));
  return file;
}

Result<std::string> JobKey(const ScriptOptions& options) {
  if (!options.key.empty()) return options.key;
  if (options.render) return std::string(kRenderedKey);
  MUSTER_ASSIGN_OR_RETURN(const std::string key, RandomKey());
  return key.substr(0, kRandomKeyDigits);
}

// A path of this machine means nothing in a container.
std::string WorkerOf(const ScriptOptions& options, const slurm::SbatchOptions& sbatch) {
  if (!options.worker.empty()) return options.worker;
  const bool contained = !options.apptainer_image.empty() || !sbatch.step().empty();
  const auto own = OwnBinaryDirectory();
  std::error_code error;
  if (!contained && own.ok() && fs::exists(*own + "/muster-worker", error))
    return *own + "/muster-worker";
  return "muster-worker";
}

Result<slurm::ScriptRequest> RequestOf(const ScriptOptions& options, const JobSpec& spec) {
  slurm::ScriptRequest request;
  request.spec = spec;
  MUSTER_ASSIGN_OR_RETURN(request.key, JobKey(options));
  MUSTER_ASSIGN_OR_RETURN(request.options, slurm::SbatchOptions::Parse(options.sbatch));
  request.worker = WorkerOf(options, request.options);
  request.worker_arguments = options.worker_arguments;
  request.apptainer_image = options.apptainer_image;
  request.apptainer_options = options.apptainer_options;
  request.signal_lead_seconds = options.signal_lead_seconds;
  request.max_requeues = options.max_requeues;
  return request;
}

// What a second submit with the same key has to repeat, apart from the job itself.
std::string RequestText(const ScriptOptions& options) {
  const nlohmann::json request = {{"sbatch", options.sbatch},
                                  {"worker", options.worker},
                                  {"worker_arguments", options.worker_arguments},
                                  {"apptainer_image", options.apptainer_image},
                                  {"apptainer_options", options.apptainer_options},
                                  {"signal_lead_seconds", options.signal_lead_seconds},
                                  {"max_requeues", options.max_requeues}};
  return request.dump(1) + "\n";
}

// sbatch prefers SBATCH_SIGNAL to the signal in the script.
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
  if (job.existed) terminal.err << "an earlier submit with this key created the job\n";
}

void AddScriptFlags(Flags& flags, ScriptOptions& options) {
  flags.PassOnUnknown();
  flags.AddOutput("-o");
  flags.Add("FILE", options.job.file, "Job file; - reads standard input").Required();
  flags.Add("--key KEY", options.key,
            "Idempotency key: the same key, job file, and options return the same job [default: "
            "random]");
  flags.Add("--name NAME", options.job.name, "Job name [default: the job file's]");
  flags.Add("--set KEY=VALUE", options.job.overrides,
            "Override a key of the job file, such as train.optimizer.lr=1e-4");
  flags.Add("--accelerate-config FILE", options.job.accelerate_config,
            "Configuration of Accelerate or DeepSpeed, for keys that the job file leaves out");
  flags.Add("--spares N", options.spares, "Number of spare nodes [default: the job file's]")
      .Range(0, 1024);
  flags.Add("--worker PATH", options.worker,
            "Path of muster-worker on the nodes [default: beside this program, else in PATH]");
  flags.Add("--worker-arg ARG", options.worker_arguments,
            "Argument for muster-worker --auto, such as --worker-arg=--interface=ib0");
  flags.Add("--apptainer IMAGE", options.apptainer_image,
            "Run in this Apptainer image; for Pyxis, pass --container-image instead");
  flags.Add("--apptainer-arg ARG", options.apptainer_options,
            "Argument for apptainer exec, such as --apptainer-arg=--bind=/data");
  flags
      .Add("--signal-lead SECONDS", options.signal_lead_seconds,
           "Time before the end of the time limit at which Slurm signals the job")
      .Range(60, 65535);
  flags.Add("--max-requeues N", options.max_requeues, "Maximum number of requeues")
      .Range(0, 1000000);
  flags.SetFooter(
      "Other options are passed to sbatch: muster slurm submit job.yaml --partition=gpu -t "
      "2:00:00. "
      "Write options that muster has too after --, as in -- --output=x.log.");
}

CommandResult RunSubmit(CommandContext& context, const slurm::SlurmCommands& commands,
                        const ScriptOptions& options) {
  Terminal& terminal = context.terminal;
  MUSTER_ASSIGN_OR_RETURN(const ReadyJob job, PrepareJob(WithSpares(options), terminal.err));
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

}  // namespace

struct SlurmSubmit {
  static constexpr char kName[] = "submit";
  static constexpr char kSummary[] = "Submit a job to Slurm";

  ScriptOptions options;

  void AddFlags(Flags& flags) {
    AddScriptFlags(flags, options);
    flags.Add("--dry-run", options.render, "Print the batch script and exit");
    const Flag waits =
        flags.Add("--wait", options.wait, "Wait until the job ends; exit with its result");
    flags.Add("--attach", options.attach, "Follow the job as muster slurm attach does")
        .Excludes(waits);
  }

  CommandResult Run(CommandContext& context) {
    options.sbatch = context.passed_on;
    return RunSubmit(context, UserSlurmCommands(), options);
  }
};

struct SlurmRender {
  static constexpr char kName[] = "render";
  static constexpr char kSummary[] = "Print the batch script that submit passes to sbatch";

  ScriptOptions options;

  void AddFlags(Flags& flags) {
    flags.ShareVariables("SLURM_SUBMIT");
    AddScriptFlags(flags, options);
  }

  CommandResult Run(CommandContext& context) {
    options.sbatch = context.passed_on;
    options.render = true;
    return RunSubmit(context, UserSlurmCommands(), options);
  }
};

template void AddVerb<SlurmSubmit>(CommandLine& line);
template void AddVerb<SlurmRender>(CommandLine& line);

}  // namespace muster::verbs
