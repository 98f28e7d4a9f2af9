// run: takes torchrun's command line, submits it as a job and shows the output.

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>
#include <thread>

#include "cli/base/exit_code.h"
#include "cli/base/processes.h"
#include "cli/base/temporary_directory.h"
#include "cli/commands/verb.h"
#include "cli/follow/follow_logs.h"
#include "cli/jobs/job_json.h"
#include "cli/local/cluster_keeper.h"
#include "cli/local/local_cluster.h"
#include "common/job_spec/job_file.h"
#include "common/job_spec/parse.h"
#include "common/job_spec/torchrun_flags.h"
#include "common/job_spec/torchrun_table.h"
#include "common/slurm/allocation.h"

namespace muster::verbs {
namespace {

namespace fs = std::filesystem;

constexpr Duration kDownTimeout = std::chrono::seconds(10);

std::string FindPython(const std::map<std::string, std::string>& environment) {
  const auto path = environment.find("PATH");
  std::istringstream folders(path == environment.end() ? "/usr/bin:/bin" : path->second);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string program = folder + "/python3";
    if (!folder.empty() && ::access(program.c_str(), X_OK) == 0) return program;
  }
  return "python3";
}

int CountGpus(const std::map<std::string, std::string>& environment) {
  if (const auto visible = environment.find("CUDA_VISIBLE_DEVICES"); visible != environment.end())
    return static_cast<int>(slurm::VisibleGpus(visible->second).size());
  int count = 0;
  std::error_code error;
  while (fs::exists("/dev/nvidia" + std::to_string(count), error)) ++count;
  return count;
}

Result<TorchrunSurroundings> ReadSurroundings() {
  TorchrunSurroundings with;
  with.environment = slurm::CurrentEnvironment();
  std::error_code error;
  with.directory = fs::current_path(error).string();
  if (error) return Unavailable("could not determine the current directory: " + error.message());
  with.python = FindPython(with.environment);
  with.cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  with.gpus = CountGpus(with.environment);
  return with;
}

// An image has programs and libraries of its own.
void ForgetOwnPrograms(TorchrunSurroundings& with) {
  with.python = "python3";
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH",
                           "PYTHON_EXEC", "VIRTUAL_ENV", "CONDA_PREFIX"})
    with.environment.erase(name);
}

// Nodes of the cluster that could have ranks.
Result<int> CountNodes(CommandContext& context) {
  MUSTER_ASSIGN_OR_RETURN(const v1::ListNodesResponse nodes, context.client.ListNodes());
  return static_cast<int>(
      std::count_if(nodes.nodes().begin(), nodes.nodes().end(),
                    [](const v1::Node& node) { return node.state() == v1::NODE_STATE_READY; }));
}

// A cluster of one node for one run.
class OwnCluster {
 public:
  explicit OwnCluster(Interrupt& interrupt) : interrupt_(interrupt) {}
  ~OwnCluster() {
    if (!client_) return;
    // An interrupt does not stop the cleanup.
    interrupt_.Take();
    const Result<DownReport> down = LocalCluster(*client_, "").Down(kDownTimeout);
    std::error_code ignored;
    // The keeper tries again to end the processes that are left.
    if (!down.ok() || !down->left.empty()) return;
    fs::remove_all(client_->dir(), ignored);
    keeper_.Dismiss();
  }
  OwnCluster(const OwnCluster&) = delete;
  OwnCluster& operator=(const OwnCluster&) = delete;

  Status Start(int slots) {
    MUSTER_ASSIGN_OR_RETURN(const std::string dir, MakeTemporaryDirectory("muster-run-"));
    MUSTER_ASSIGN_OR_RETURN(const std::string binaries, OwnBinaryDirectory());
    client_ = std::make_unique<ClusterClient>(dir, interrupt_);
    MUSTER_RETURN_IF_ERROR(keeper_.Start(binaries + "/muster", dir));
    UpOptions up;
    up.nodes = 1;
    up.slots = slots;
    return LocalCluster(*client_, binaries).Up(up).status();
  }
  ClusterClient& client() { return *client_; }

 private:
  Interrupt& interrupt_;
  std::unique_ptr<ClusterClient> client_;
  ClusterKeeper keeper_;
};

// --log-dir: torchrun would write the logs there; links to where they are.
Status LinkLogs(const v1::Job& job, const std::string& log_dir) {
  std::error_code error;
  fs::create_directories(log_dir, error);
  if (!error)
    fs::create_directory_symlink(job.output_dir() + "/logs", fs::path(log_dir) / job.id(), error);
  if (!error) return OkStatus();
  return Unavailable("--log-dir " + log_dir + ": " + error.message() + "; the logs are in " +
                     job.output_dir() + "/logs");
}

// Shows what the ranks print until the job ends. The first interrupt cancels the job; a second one
// no longer waits for its end.
CommandResult FollowToEnd(CommandContext& context, const std::string& id, const TorchrunJob& run) {
  bool cancelled = false;
  const auto cancel = [&] {
    if (cancelled || !context.interrupt().Take()) return false;
    cancelled = true;
    v1::CancelRequest request;
    request.set_job(id);
    request.set_reason("interrupted");
    // It fails for a job that has ended by now, which is as good.
    (void)context.client.Cancel(request);
    return true;
  };
  LogsOptions logs{.job = id, .follow = true};
  logs.from_first = true;
  logs.local_ranks = run.shown;
  logs.ranks_per_node = run.ranks_per_node;
  logs.on_interrupt = cancel;
  CommandResult followed = ShowLogs(context, logs);
  // The interrupt came before the first answer.
  if (!followed.ok() && cancel()) followed = ShowLogs(context, logs);
  if (!followed.ok() || *followed == kExitInterrupted) return followed;
  MUSTER_ASSIGN_OR_RETURN(const v1::Job job, context.client.GetJob(id));
  if (job.state() != v1::JOB_STATE_SUCCEEDED) {
    context.terminal.err << "muster: job " << id << " " << StateWord(job.state()) << ": "
                         << Printable(job.reason()) << "\n";
  }
  return cancelled ? kExitInterrupted : ExitCodeOf(job.state());
}

CommandResult RunOn(CommandContext& context, const TorchrunJob& run) {
  v1::SubmitRequest request;
  request.set_spec_yaml(run.yaml);
  MUSTER_ASSIGN_OR_RETURN(const v1::SubmitResponse response, context.client.Submit(request));
  context.terminal.err << "muster: job " << response.id() << " (" << response.name() << "), "
                       << run.nodes << " x " << run.ranks_per_node << " ranks\n";
  if (!run.log_dir.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const v1::Job job, context.client.GetJob(response.id()));
    if (const Status linked = LinkLogs(job, run.log_dir); !linked.ok())
      context.terminal.err << "muster: " << linked.message() << "\n";
  }
  return FollowToEnd(context, response.id(), run);
}

}  // namespace

struct RunScript {
  static constexpr char kName[] = "run";
  static constexpr char kSummary[] =
      "Run a script as torchrun does: run [--dir DIR] TORCHRUN-FLAGS SCRIPT ARGS";

  bool print_job = false;
  std::string queue;
  std::string priority_class;
  std::string container;
  std::vector<std::string> mounts;

  // Words that are no flag of this verb are torchrun's; those behind the script are the script's.
  void AddFlags(Flags& flags) {
    flags.PassOnRest();
    flags.Add("--dir DIR", flags.global().dir, "Cluster directory").Variable("");
    flags.Add("--queue NAME", queue, "Queue").Variable("");
    flags.Add("--class NAME", priority_class, "Priority class").Variable("");
    flags.Add("--container IMAGE", container, "Image of podman, or unpacked root, to run in")
        .Variable("");
    flags.Add("--mount SOURCE[:TARGET][:ro]", mounts, "Mount of the container; repeatable")
        .Variable("");
    flags.Add("--print-job", print_job, "Print the job file and exit").Variable("");
    flags.SetFooter(TorchrunHelp());
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(TorchrunSurroundings with, ReadSurroundings());
    if (!container.empty()) ForgetOwnPrograms(with);
    MUSTER_ASSIGN_OR_RETURN(
        const TorchrunFlags flags,
        ParseTorchrunFlags(context.passed_on, with.environment,
                           {"dir", "queue", "class", "container", "mount", "print-job"}));
    if (!print_job && !flags.on("standalone")) {
      MUSTER_ASSIGN_OR_RETURN(with.nodes, CountNodes(context));
    }
    MUSTER_ASSIGN_OR_RETURN(TorchrunJob run, JobFromTorchrun(flags, with));
    std::vector<std::string> overrides;
    if (!queue.empty()) overrides.push_back(OverrideText("queue", queue));
    if (!priority_class.empty()) overrides.push_back(OverrideText("class", priority_class));
    for (const std::string& one : ContainerOverrides(container, mounts)) overrides.push_back(one);
    if (!overrides.empty()) {
      MUSTER_ASSIGN_OR_RETURN(run.yaml, ApplyOverrides(run.yaml, overrides));
    }
    for (const std::string& note : run.notes) context.terminal.err << "muster: " << note << "\n";
    if (print_job) {
      context.terminal.out << run.yaml;
      return kExitSuccess;
    }
    if (!run.standalone) return RunOn(context, run);
    OwnCluster cluster(context.interrupt());
    MUSTER_RETURN_IF_ERROR(cluster.Start(run.ranks_per_node));
    CommandContext own{cluster.client(), context.terminal, context.output};
    return RunOn(own, run);
  }
};

template void AddVerb<RunScript>(CommandLine& line);

}  // namespace muster::verbs
