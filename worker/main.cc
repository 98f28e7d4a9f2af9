// muster-worker: one per node. See worker/service/server.h.

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

#include "common/base/byte_size.h"
#include "common/base/cluster_paths.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/open_files.h"
#include "common/command_line/finite_numbers.h"
#include "common/command_line/help_words.h"
#include "common/command_line/version_text.h"
#include "common/process/cpu_affinity.h"
#include "common/rpc/coordinator_addresses.h"
#include "common/rpc/endpoint.h"
#include "common/runtime/exit_deadline.h"
#include "common/telemetry/log.h"
#include "worker/agent/owner_server.h"
#include "worker/allocation/auto_command.h"
#include "worker/fabric/cpu_topology.h"
#include "worker/fabric/fake_gpus.h"
#include "worker/fabric/node_place.h"
#include "worker/fabric/node_report.h"
#include "worker/health/host_memory.h"
#include "worker/launcher/client.h"
#include "worker/process/cgroup.h"
#include "worker/process/device_lock.h"
#include "worker/service/enrolment.h"
#include "worker/service/server.h"

namespace {

constexpr int kUsageError = 2;
constexpr int kNoteBytes = 4096;
constexpr auto kEndsWithin = std::chrono::seconds(10);  // once it serves no job any more
constexpr char kReportFlag[] = "--report-transport";
constexpr char kOtherUses[] =
    "In a Slurm allocation, srun muster-worker --auto --job FILE supervises each node and runs "
    "the\n"
    "job with its own coordinator; see muster-worker --auto --help.";

std::string OwnDirectory() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
}

std::string BesideOwnBinary(const std::string& name) { return OwnDirectory() + "/" + name; }

std::string CheckNodeName(const std::string& name) {
  return muster::FollowsNameRule(name) ? "" : "a node name is " + std::string(muster::kNameRule);
}

std::string CheckCoordinators(const std::string& list) {
  return muster::CoordinatorAddresses::Parse(list).status().message();
}

// What the node has, as far as the command line says.
struct ResourceTexts {
  std::optional<int> cpus;
  std::string memory;
  std::vector<std::string> labels;
  std::string topology;
  std::string topology_file;
  int gpu_shares = 1;
  std::string fake_gpus;
  std::string device_locks;
};

// Values of the command line in the form that the worker needs.
struct Texts {
  std::string address;
  std::string interface;
  bool no_cpu_binding = false;
  bool no_gpu_metrics = false;
  double scrape_seconds = 15;
  ResourceTexts resources;
  std::string log_level = "info";
  std::string drain_on_term;
  std::string stop_notice_command;
  std::string join;
  std::string coordinators;
};

void AddNetworkOptions(CLI::App& app, Texts* texts) {
  app.add_option("--address", texts->address,
                 "Address at which other nodes reach this node's ranks [default: the address that "
                 "reaches the coordinator]");
  app.add_option(
      "--interface", texts->interface,
      "Network interfaces for ranks, by name or by network (eth0, ib0,ib1, 10.1.0.0/16); "
      "the first one gives the address");
}

void AddGpuOptions(CLI::App& app, ResourceTexts* texts) {
  app.add_option(
         "--oversubscribe-gpus", texts->gpu_shares,
         "Offer each GPU N times, so that N ranks, also of different jobs, compute on it at "
         "the same time")
      ->check(CLI::Range(1, muster::kMaxDevicesPerNode));
  app.add_option("--fake-gpus", texts->fake_gpus,
                 "File with invented GPUs in place of the real ones, for tests of placement; ranks "
                 "train on the CPU")
      ->option_text("FILE");
}

void AddLocksOption(CLI::App& app, ResourceTexts* texts) {
  app.add_option("--device-locks", texts->device_locks,
                 "Directory in which jobs lock GPUs, the same for all workers of this machine, "
                 "whatever their clusters and users; a GPU that another worker's job has is not "
                 "used meanwhile [default: /run/lock, /dev/shm, or /tmp, the first that all users "
                 "may write to; for --fake-gpus one of this worker alone]")
      ->option_text("DIR")
      ->envname("MUSTER_DEVICE_LOCKS");
}

void AddResourceOptions(CLI::App& app, ResourceTexts* texts) {
  app.add_option("--cpus", texts->cpus,
                 "CPUs that ranks may have together; 0: they are not counted [default: those that "
                 "this worker may use, at least one per slot]")
      ->check(CLI::Range(0, 8192));
  app.add_option("--memory", texts->memory,
                 "Memory that ranks may have together, such as 500GB [default: this host's, or the "
                 "limit of the worker's cgroup]");
  app.add_option("--label", texts->labels,
                 "Label of this node, KEY=VALUE, for resources.labels of job files; repeatable")
      ->option_text("KEY=VALUE")
      ->allow_extra_args(false);
  auto* const topology = app.add_option(
      "--topology", texts->topology,
      "Place of this node in the network: block=B,rack=R,switch=S, or some of these [default: "
      "what Slurm says]");
  app.add_option("--topology-file", texts->topology_file,
                 "File with a line 'NODE block=B,rack=R,switch=S' for each node")
      ->excludes(topology);
  AddGpuOptions(app, texts);
  AddLocksOption(app, texts);
}

void AddBindingOption(CLI::App& app, Texts* texts) {
  app.add_flag("--no-cpu-binding", texts->no_cpu_binding,
               "Do not bind ranks to CPUs, because other workers share this host");
}

void AddLauncherOption(CLI::App& app, muster::worker::WorkerOptions* options) {
  app.add_option("--launcher", options->launcher,
                 "Socket of muster-launcher, which runs each job as the account that the cluster's "
                 "user file has for its owner [default: jobs run as this worker's user]")
      ->option_text("PATH")
      ->envname("MUSTER_LAUNCHER");
}

void AddNvmlOption(CLI::App& app, muster::worker::WorkerOptions* options) {
  app.add_option("--nvml", options->health.nvml,
                 "NVML library for the state of NVIDIA GPUs; empty disables it")
      ->capture_default_str();
}

void AddHealthOptions(CLI::App& app, muster::worker::WorkerOptions* options, Texts* texts) {
  app.add_option("--failure-domain", options->failure_domain,
                 "Failure domain of this node, such as its rack or switch; copies of its state are "
                 "kept in another one [default: its rack by --topology, else the host]");
  app.add_flag("--allow-faults", options->allow_faults, "Allow muster fault to inject faults");
  app.add_flag(
         "--drain-on-term{25}", texts->drain_on_term,
         "On SIGTERM, drain this node and exit when no job is left, or after N seconds [default: "
         "25]")
      ->check(CLI::Range(1e-3, 365 * 24 * 3600.0).description("SECONDS, a year at most"));
  app.add_option("--pilot", options->pilot, "Key of the pilot job that started this worker");
  app.add_option("--stop-notice-file", options->health.stop_notice.file,
                 "File that appears when this node is about to stop; it may contain the remaining "
                 "seconds");
  app.add_option(
      "--stop-notice-command", texts->stop_notice_command,
      "Command, run each second without a shell, that exits with 0 when this node is about "
      "to stop; it may print the remaining seconds");
  app.add_option("--kernel-log", options->health.kernel_log,
                 "Kernel log to watch; empty disables it")
      ->capture_default_str();
  AddNvmlOption(app, options);
}

void AddMetricsOptions(CLI::App& app, muster::worker::WorkerOptions* options, Texts* texts) {
  app.add_option("--scrape-interval", texts->scrape_seconds,
                 "Scrape interval of /metrics; series of ended jobs stay for three intervals")
      ->envname("MUSTER_SCRAPE_INTERVAL")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"ms", 1e-3}, {"s", 1}, {"m", 60}}))
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  app.add_option(
         "--dcgm-job-mapping-dir", options->dcgm_job_mapping_dir,
         "Directory of dcgm-exporter's --hpc-job-mapping-dir; the worker writes the files of "
         "this node's GPUs there, so that its series name the jobs")
      ->envname("MUSTER_DCGM_JOB_MAPPING_DIR");
  app.add_flag("--no-gpu-metrics", texts->no_gpu_metrics,
               "Export no GPU metrics, because another exporter does [default with "
               "--dcgm-job-mapping-dir]");
}

void AddClusterOptions(CLI::App& app, muster::worker::WorkerOptions* options, Texts* texts) {
  app.add_option(
         "--coordinator", texts->coordinators,
         "Coordinator on another machine (its --tls-listen), or several of which one leads, by "
         "address or SRV records (dnssrv+_muster._tcp.DOMAIN); requires credentials")
      ->option_text("IP:PORT|dnssrv+NAME[,...]")
      ->check(CheckCoordinators)
      ->envname("MUSTER_COORDINATOR");
  app.add_option("--tls", options->tls_dir,
                 "Directory with this node's credentials [default with --coordinator: "
                 "DIR/nodes/NAME/credentials]")
      ->option_text("DIR")
      ->envname("MUSTER_TLS");
  app.add_option("--join", texts->join,
                 "Join token, or a file with one, for the node's credentials at its first start; "
                 "it names the coordinator")
      ->option_text("TOKEN")
      ->envname("MUSTER_JOIN_TOKEN");
}

void AddOptions(CLI::App& app, muster::worker::WorkerOptions* options, std::string* log_level) {
  app.add_option("--dir", options->cluster_dir,
                 "Cluster directory; with --coordinator, a directory of this machine")
      ->option_text("DIR")
      ->required()
      ->envname("MUSTER_DIR")
      ->check(muster::NotEmpty());
  app.add_option("--node", options->node, "Node name, unique in the cluster")
      ->option_text("NAME")
      ->required()
      ->check(CheckNodeName);
  app.add_option("--slots", options->slots,
                 "Slots of this node; a slot holds one rank [default: one per GPU, else per CPU]")
      ->check(CLI::Range(1, 4096));
  app.add_option("--endpoint", options->endpoint_path,
                 "File with the coordinator's address [default: the one below --dir]");
  app.add_option("--token", options->token_path,
                 "File with the cluster's token [default: the one below --dir]");
  app.add_option("--trainer", options->trainer_path,
                 "Path of muster-trainer [default: beside this program]");
  app.add_option("--http-port", options->http_port, "Port of /metrics and /healthz; 0 selects any")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--log-level", *log_level, "Log level: trace, debug, info, warn, or error")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}))
      ->capture_default_str();
  app.add_flag(kReportFlag)->description("Print the node's networks and GPUs and exit");
  app.set_version_flag("--version", muster::VersionText("muster-worker"),
                       "Print the version and exit");
}

// None where the text is no list.
std::vector<std::string> ListOf(const std::string& coordinators) {
  auto list = muster::CoordinatorAddresses::Parse(coordinators);
  return list.ok() ? *std::move(list) : std::vector<std::string>{};
}

// A node that has joined once, and is started in its own directory without --join, goes on there.
void TakeCoordinatorOfBefore(const Texts& texts, muster::worker::WorkerOptions* options) {
  const muster::ClusterPaths paths{options->cluster_dir};
  const bool is_given = !texts.join.empty() || !options->coordinators.empty() ||
                        !options->endpoint_path.empty() || !options->tls_dir.empty();
  if (is_given || std::filesystem::exists(paths.Endpoint())) return;
  const auto noted = muster::ReadFile(paths.CoordinatorOfNode(options->node), kNoteBytes);
  if (noted.ok()) options->coordinators = ListOf(*noted);
}

void FillDefaults(muster::worker::WorkerOptions* options, const Texts& texts) {
  options->cluster_dir =
      std::filesystem::absolute(options->cluster_dir).lexically_normal().string();
  const muster::ClusterPaths paths{options->cluster_dir};
  options->coordinators = ListOf(texts.coordinators);
  TakeCoordinatorOfBefore(texts, options);
  if (options->endpoint_path.empty()) options->endpoint_path = paths.Endpoint();
  if (options->token_path.empty()) options->token_path = paths.Token();
  if (options->tls_dir.empty() && !options->coordinators.empty())
    options->tls_dir = paths.NodeCredentials(options->node);
  if (options->trainer_path.empty()) options->trainer_path = BesideOwnBinary("muster-trainer");
  options->guardian_path = BesideOwnBinary("muster-guardian");
  if (!texts.drain_on_term.empty()) options->drain_on_term = std::stod(texts.drain_on_term);
  options->scrape_interval = muster::FromSeconds(texts.scrape_seconds);
  options->gpu_basics = !texts.no_gpu_metrics && options->dcgm_job_mapping_dir.empty();
  if (const char* job = std::getenv("SLURM_JOB_ID")) options->slurm_job_id = job;
  options->health.stop_notice.command = muster::worker::SplitWords(texts.stop_notice_command);
  options->health.disk_dir = paths.NodeDir(options->node);
}

void Tell(const std::vector<std::string>& report) {
  for (const std::string& line : report) {
    const bool problem = line.starts_with("problem: ");
    muster::Log().log(problem ? muster::LogLevel::kWarning : muster::LogLevel::kInfo, "{}", line);
  }
}

muster::Result<muster::worker::NodeReport> LookAtNode(const muster::worker::NodeAddress& address,
                                                      const ResourceTexts& texts,
                                                      const std::string& node,
                                                      const std::string& nvml) {
  muster::worker::NodeReportOptions options{.address = address,
                                            .node = node,
                                            .nvml_library = nvml,
                                            .environment = ::environ,
                                            .gpu_shares = texts.gpu_shares};
  if (!texts.fake_gpus.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const std::string yaml, muster::ReadFile(texts.fake_gpus));
    MUSTER_ASSIGN_OR_RETURN(options.fake_gpus,
                            muster::worker::ParseFakeGpus(yaml, texts.fake_gpus, node));
  }
  return muster::worker::LookAtNode(options);
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

muster::Result<muster::TopologyPath> FindTopology(const ResourceTexts& texts,
                                                  const std::string& node) {
  if (!texts.topology.empty()) return muster::worker::ParseTopology(texts.topology);
  if (texts.topology_file.empty())
    return muster::worker::TopologyOfSlurm(Variable("SLURM_TOPOLOGY_ADDR"),
                                           Variable("SLURM_TOPOLOGY_ADDR_PATTERN"));
  MUSTER_ASSIGN_OR_RETURN(const std::string text, muster::ReadFile(texts.topology_file));
  return muster::worker::TopologyInFile(text, texts.topology_file, node);
}

// What of the inventory is not a device. The slots are known.
muster::Status FillInventory(const ResourceTexts& texts, muster::worker::WorkerOptions* options) {
  muster::NodeInventory& inventory = options->inventory;
  MUSTER_ASSIGN_OR_RETURN(inventory.labels, muster::worker::ParseLabels(texts.labels));
  MUSTER_ASSIGN_OR_RETURN(inventory.topology, FindTopology(texts, options->node));
  if (options->failure_domain.empty()) options->failure_domain = inventory.topology.rack;
  const auto allowed = static_cast<int>(muster::AllowedCpus().size());
  inventory.cpus = texts.cpus.value_or(std::max(allowed, options->slots));
  inventory.memory_bytes = muster::worker::ReadHostMemory().total_bytes;
  const std::uint64_t limit = muster::MemoryLimit("");
  if (limit > 0 && (limit < inventory.memory_bytes || inventory.memory_bytes == 0))
    inventory.memory_bytes = limit;
  if (texts.memory.empty()) return muster::OkStatus();
  const auto memory = muster::ParseByteSize(texts.memory);
  if (!memory)
    return muster::InvalidArgument("--memory " + texts.memory + ": expected " +
                                   muster::kByteSizeExpected);
  inventory.memory_bytes = static_cast<std::uint64_t>(*memory);
  return muster::OkStatus();
}

// Fake GPUs are those of one cluster.
muster::Status FindDeviceLocks(const ResourceTexts& texts, muster::worker::WorkerOptions* options) {
  const muster::ClusterPaths paths{options->cluster_dir};
  std::string& directory = options->device_locks;
  if (!texts.device_locks.empty()) {
    directory = std::filesystem::absolute(texts.device_locks).lexically_normal().string();
  } else if (options->launcher.empty() && (options->devices.empty() || !texts.fake_gpus.empty())) {
    directory = paths.DevicesDir(options->node);
  } else {
    MUSTER_ASSIGN_OR_RETURN(directory, muster::SharedLockDirectory());
  }
  if (!options->launcher.empty() && muster::launcher::IsOfEachJob(directory))
    return muster::InvalidArgument("jobs that run as their owners would not see " + directory +
                                   "; name another directory with --device-locks");
  if (!options->devices.empty()) options->health.device_locks = directory;
  options->health.jobs_dir = paths.JobsDir(options->node);
  return muster::OkStatus();
}

// Address, networks and GPUs. A coordinator that has not started has no endpoint yet.
muster::Status LookAround(const Texts& texts, muster::worker::WorkerOptions* options) {
  muster::CoordinatorAddresses coordinators(options->coordinators);
  const auto endpoint = muster::FindCoordinator(coordinators, options->endpoint_path);
  const bool by_tls = endpoint.ok() && !options->tls_dir.empty() && !endpoint->grpc_tls.empty();
  MUSTER_ASSIGN_OR_RETURN(
      const muster::worker::NodeAddress address,
      muster::worker::ResolveNodeAddress(
          {.address = texts.address,
           .interface = texts.interface,
           .coordinator = by_tls          ? endpoint->grpc_tls
                          : endpoint.ok() ? endpoint->grpc
                                          : "",
           // One whose name no server resolves is not on this host.
           .others_are_remote = !endpoint.ok() && !options->coordinators.empty()}));
  if (!texts.resources.fake_gpus.empty()) options->health.nvml.clear();
  MUSTER_ASSIGN_OR_RETURN(
      const muster::worker::NodeReport node,
      LookAtNode(address, texts.resources, options->node, options->health.nvml));
  Tell(node.lines);
  options->address = address.address;
  options->interfaces = address.interfaces;
  options->devices = options->health.devices = node.devices;
  options->report = node.lines;
  MUSTER_RETURN_IF_ERROR(FindDeviceLocks(texts.resources, options));
  if (!texts.no_cpu_binding) options->cpus = muster::worker::ReadCpuTopology(muster::AllowedCpus());
  if (options->slots == 0)
    options->slots = static_cast<int>(std::ranges::count_if(
        options->devices, [](const auto& one) { return one.device.fault.empty(); }));
  if (options->slots == 0)
    options->slots = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return FillInventory(texts.resources, options);
}

// The coordinator's address by the invitation, or, once that is gone, by the note of it.
muster::Status TakeCoordinatorOfInvitation(const std::string& join, const std::string& noted,
                                           muster::worker::WorkerOptions* options) {
  if (!options->coordinators.empty()) return muster::OkStatus();
  const auto invitation = muster::worker::InvitationOf(join);
  if (invitation.ok() && !invitation->coordinator.empty())
    options->coordinators = ListOf(invitation->coordinator);
  else if (const auto before = muster::ReadFile(noted, kNoteBytes); before.ok())
    options->coordinators = ListOf(*before);
  if (!options->coordinators.empty()) return muster::OkStatus();
  if (!invitation.ok()) return invitation.status();
  return muster::InvalidArgument(
      "the join token does not say where the coordinator is; add --coordinator IP:PORT");
}

muster::Status Join(const std::string& join, muster::worker::WorkerOptions* options) {
  if (join.empty()) return muster::OkStatus();
  const muster::ClusterPaths paths{options->cluster_dir};
  const std::string noted = paths.CoordinatorOfNode(options->node);
  MUSTER_RETURN_IF_ERROR(TakeCoordinatorOfInvitation(join, noted, options));
  if (options->tls_dir.empty()) options->tls_dir = paths.NodeCredentials(options->node);
  MUSTER_RETURN_IF_ERROR(muster::MakePrivateTree(paths.NodeDir(options->node)));
  // It is a secret, and ranks have the worker's environment.
  ::unsetenv("MUSTER_JOIN_TOKEN");
  MUSTER_RETURN_IF_ERROR(muster::worker::JoinUntilIn({join, options->node, options->tls_dir}));
  return muster::WriteFileAtomically(noted,
                                     muster::CoordinatorAddresses::Text(options->coordinators));
}

bool WantsReport(int argc, char** argv) {
  return std::any_of(argv, argv + argc,
                     [](const char* word) { return std::string_view(word) == kReportFlag; });
}

// Reports what a worker would find here, and is no worker.
int PrintReport(int argc, char** argv) {
  CLI::App app{"Print this node's address, networks, and GPUs",
               "muster-worker " + std::string(kReportFlag)};
  muster::WriteHelpInWords(app);
  Texts texts;
  muster::worker::WorkerOptions options;
  app.add_flag(kReportFlag)->description("Print the report and exit");
  AddNetworkOptions(app, &texts);
  AddNvmlOption(app, &options);
  AddGpuOptions(app, &texts.resources);
  try {
    app.parse(argc, argv);
    muster::CheckNumbersAreFinite(app);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : kUsageError;
  }
  const auto address = muster::worker::ResolveNodeAddress(
      {.address = texts.address, .interface = texts.interface, .others_are_remote = true});
  if (!address.ok()) {
    std::fprintf(stderr, "muster-worker: %s\n", address.status().message().c_str());
    return EXIT_FAILURE;
  }
  const auto node = LookAtNode(*address, texts.resources, "node", options.health.nvml);
  if (!node.ok()) {
    std::fprintf(stderr, "muster-worker: %s\n", node.status().message().c_str());
    return EXIT_FAILURE;
  }
  for (const std::string& line : node->lines) std::printf("%s\n", line.c_str());
  return EXIT_SUCCESS;
}

muster::Status FindLauncher(muster::worker::WorkerOptions* options) {
  if (options->launcher.empty()) return muster::OkStatus();
  MUSTER_ASSIGN_OR_RETURN(options->launcher_dir, muster::Launcher(options->launcher).Hello());
  muster::Log().info("jobs run as their owners, by {}", options->launcher);
  return muster::OkStatus();
}

// The settings that are needed before there is a server.
muster::Status Prepare(const Texts& texts, muster::worker::WorkerOptions* options) {
  MUSTER_RETURN_IF_ERROR(Join(texts.join, options));
  MUSTER_RETURN_IF_ERROR(FindLauncher(options));
  return LookAround(texts, options);
}

int Run(muster::worker::WorkerOptions options, const Texts& texts) {
  if (const muster::Status status = Prepare(texts, &options); !status.ok()) {
    muster::Log().error("{}", status.message());
    return EXIT_FAILURE;
  }
  auto server = muster::worker::WorkerServer::Start(options);
  if (!server.ok()) {
    muster::Log().error("{}", server.status().message());
    return EXIT_FAILURE;
  }
  (*server)->Run();
  const muster::ExitDeadline deadline(kEndsWithin, EXIT_SUCCESS);
  server->reset();
  return EXIT_SUCCESS;
}

// For a step of Slurm: another program, which runs a worker and a coordinator if necessary.
int Supervise(int argc, char** argv) {
  try {
    ::signal(SIGPIPE, SIG_IGN);
    muster::RaiseOpenFilesLimit();
    return muster::worker::RunAuto(argc, argv, OwnDirectory());
  } catch (const std::exception& error) {
    muster::PrintError("muster-worker: " + std::string(error.what()));
    return EXIT_FAILURE;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--serve-files")  // by muster-launcher
    muster::worker::ServeOwnerFiles(std::atoi(argv[2]));
  if (WantsReport(argc, argv)) return PrintReport(argc, argv);
  if (muster::worker::WantsAuto(argc, argv)) return Supervise(argc, argv);
  CLI::App app{"Run the ranks of jobs on one node for the coordinator.", "muster-worker"};
  muster::WriteHelpInWords(app);
  app.footer(kOtherUses);
  muster::worker::WorkerOptions options;
  Texts texts;
  AddOptions(app, &options, &texts.log_level);
  AddNetworkOptions(app, &texts);
  AddBindingOption(app, &texts);
  AddLauncherOption(app, &options);
  AddResourceOptions(app, &texts.resources);
  AddClusterOptions(app, &options, &texts);
  AddHealthOptions(app, &options, &texts);
  AddMetricsOptions(app, &options, &texts);
  try {
    app.parse(argc, argv);
    muster::CheckNumbersAreFinite(app);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : kUsageError;
  }
  try {
    // A peer that is gone is an error of the write, not the end of this process.
    ::signal(SIGPIPE, SIG_IGN);
    muster::RaiseOpenFilesLimit();
    FillDefaults(&options, texts);
    muster::InitLogging("worker " + options.node, texts.log_level);
    return Run(std::move(options), texts);
  } catch (const std::exception& error) {
    muster::PrintError("muster-worker: " + std::string(error.what()));
    return EXIT_FAILURE;
  }
}
