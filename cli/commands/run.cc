// run: what torchrun's command line asks for, as a job whose output is shown.

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>
#include <thread>

#include "cli/cluster_keeper.h"
#include "cli/commands/commands.h"
#include "cli/exit_code.h"
#include "cli/job_json.h"
#include "common/job_spec/torchrun_flags.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr Duration kDownTimeout = std::chrono::seconds(10);

std::map<std::string, std::string> OwnEnvironment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return environment;
}

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
  int count = 0;
  if (const auto visible = environment.find("CUDA_VISIBLE_DEVICES"); visible != environment.end()) {
    std::istringstream names(visible->second);
    for (std::string name; std::getline(names, name, ',');) count += name.empty() ? 0 : 1;
    return count;
  }
  std::error_code error;
  while (fs::exists("/dev/nvidia" + std::to_string(count), error)) ++count;
  return count;
}

Result<TorchrunSurroundings> LookAround() {
  TorchrunSurroundings with;
  with.environment = OwnEnvironment();
  std::error_code error;
  with.directory = fs::current_path(error).string();
  if (error) return Unavailable("the current directory cannot be found: " + error.message());
  with.python = FindPython(with.environment);
  with.cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  with.gpus = CountGpus(with.environment);
  return with;
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
    // Also after an interrupt, which has no say in this.
    interrupt_.Take();
    const Result<DownReport> down = LocalCluster(*client_, "").Down(kDownTimeout);
    std::error_code ignored;
    // What could not be ended is the keeper's to try again.
    if (!down.ok() || !down->left.empty()) return;
    fs::remove_all(client_->dir(), ignored);
    keeper_.Dismiss();
  }
  OwnCluster(const OwnCluster&) = delete;
  OwnCluster& operator=(const OwnCluster&) = delete;

  Status Start(int slots) {
    std::string pattern = (fs::temp_directory_path() / "muster-run-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      return Unavailable("no directory can be made in " + fs::temp_directory_path().string() +
                         "; set TMPDIR to one that can be written");
    }
    MUSTER_ASSIGN_OR_RETURN(const std::string binaries, OwnBinaryDirectory());
    client_ = std::make_unique<ClusterClient>(pattern, interrupt_);
    MUSTER_RETURN_IF_ERROR(keeper_.Start(binaries + "/muster", pattern));
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

// --log-dir: where torchrun would have had them, a link to where they are.
Status LinkLogs(const v1::Job& job, const std::string& log_dir) {
  std::error_code error;
  fs::create_directories(log_dir, error);
  if (!error)
    fs::create_directory_symlink(job.output_dir() + "/logs", fs::path(log_dir) / job.id(), error);
  if (!error) return OkStatus();
  return Unavailable("--log-dir " + log_dir + ": " + error.message() + "; the logs are in " +
                     job.output_dir() + "/logs");
}

// Shows what the ranks print until the job is over.
CommandResult FollowToEnd(CommandContext& context, const std::string& id, const TorchrunJob& run) {
  bool cancelled = false;
  const auto cancel = [&] {
    if (cancelled || !context.interrupt().Take()) return false;
    cancelled = true;
    v1::CancelRequest request;
    request.set_job(id);
    request.set_reason("interrupted");
    // A job that is over by now is as good.
    (void)context.client.Cancel(request);
    return true;
  };
  LogsOptions logs{.job = id, .follow = true};
  logs.from_first = true;
  logs.local_ranks = run.shown;
  logs.ranks_per_node = run.ranks_per_node;
  logs.on_interrupt = cancel;
  CommandResult followed = RunLogs(context, logs);
  // It came before the first answer.
  if (!followed.ok() && cancel()) followed = RunLogs(context, logs);
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

CommandResult RunTorchrun(CommandContext& context, const RunOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(TorchrunSurroundings with, LookAround());
  MUSTER_ASSIGN_OR_RETURN(const TorchrunFlags flags,
                          ParseTorchrunFlags(options.arguments, with.environment));
  if (!options.print_job && !flags.on("standalone")) {
    MUSTER_ASSIGN_OR_RETURN(with.nodes, CountNodes(context));
  }
  MUSTER_ASSIGN_OR_RETURN(const TorchrunJob run, JobFromTorchrun(flags, with));
  for (const std::string& note : run.notes) context.terminal.err << "muster: " << note << "\n";
  if (options.print_job) {
    context.terminal.out << run.yaml;
    return kExitSuccess;
  }
  if (!run.standalone) return RunOn(context, run);
  OwnCluster cluster(context.interrupt());
  MUSTER_RETURN_IF_ERROR(cluster.Start(run.ranks_per_node));
  CommandContext own{cluster.client(), context.terminal, context.output};
  return RunOn(own, run);
}

}  // namespace muster
