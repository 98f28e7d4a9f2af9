#include "cli/local/local_cluster.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cli/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/proc_reader.h"
#include "common/process/network_namespace.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr auto kPoll = std::chrono::milliseconds(20);
constexpr auto kClusterLockTimeout = std::chrono::seconds(20);
constexpr std::size_t kLogLinesShown = 8;
constexpr char kCoordinator[] = "coordinator";
constexpr char kAnyPort[] = "127.0.0.1:0";
// What fits into a Unix socket's address.
constexpr std::size_t kMaxSocketPath = 107;

// A drained or quarantined node is up, although it takes no jobs.
bool IsConnected(v1::NodeState state) {
  return state == v1::NODE_STATE_READY || state == v1::NODE_STATE_DRAINING ||
         state == v1::NODE_STATE_DRAINED || state == v1::NODE_STATE_QUARANTINED;
}

constexpr auto kKillTimeout = std::chrono::seconds(5);
// Members of etcd meet, elect, and then coordinators do; beside a cluster's own start.
constexpr auto kElectionsWithin = std::chrono::seconds(30);
// A leader that has ended is named until its lease ends.
constexpr auto kOwnLeaderWithin = std::chrono::seconds(8);

std::string Described(const NamedProcess& process) {
  return process.program + " (pid " + std::to_string(process.id.pid) + ")";
}

// The guardian that a record names, if it still runs.
std::optional<ProcessId> LivingGuardian(const std::string& record, const std::string& boot_id) {
  const auto text = ReadFile(record, 64 << 10);
  if (!text.ok()) return std::nullopt;
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("pid") || !json["pid"].is_number_integer())
    return std::nullopt;
  if (json.contains("boot_id") && json["boot_id"].is_string() && json["boot_id"] != boot_id)
    return std::nullopt;
  if (!json.contains("start_time") || !json["start_time"].is_number_integer()) return std::nullopt;
  const ProcessId guardian{json["pid"].get<pid_t>(), json["start_time"].get<std::uint64_t>()};
  return IsAlive(guardian) ? std::optional(guardian) : std::nullopt;
}

}  // namespace

LocalCluster::LocalCluster(ClusterClient& client, std::string binary_dir)
    : client_(client),
      paths_(client.paths()),
      binary_dir_(std::move(binary_dir)),
      network_(paths_.dir),
      group_(paths_) {}

Result<UniqueFd> LocalCluster::Lock() {
  UniqueFd fd(::open(paths_.UpLock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + paths_.UpLock());
  const Deadline deadline = Deadline::After(kClusterLockTimeout);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return ErrnoStatus(errno, "lock " + paths_.UpLock());
    if (deadline.Expired())
      return Aborted("another muster up or down is running on " + paths_.dir +
                     "; try again when it has finished");
    if (client_.interrupt().WaitFor(kPoll)) return Cancelled("interrupted");
  }
  return fd;
}

LocalCluster::Record LocalCluster::ReadRecord() const {
  const auto record = ReadFile(paths_.ClusterRecord(), 16384);
  if (!record.ok()) return {};
  const auto json = nlohmann::json::parse(*record, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return {};
  const auto number = [&](const char* key) {
    return json.contains(key) && json[key].is_number_integer() ? json[key].get<int>() : 0;
  };
  const auto flag = [&](const char* key) {
    return json.contains(key) && json[key].is_boolean() && json[key].get<bool>();
  };
  const auto text = [&](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
  };
  return {number("nodes"),      number("slots"),           flag("netns"),
          flag("allow_faults"), number("failure_domains"), text("fake_gpus")};
}

Status LocalCluster::WriteRecord(const Record& record) const {
  const nlohmann::json json = {{"nodes", record.nodes},
                               {"slots", record.slots},
                               {"netns", record.netns},
                               {"allow_faults", record.allow_faults},
                               {"failure_domains", record.failure_domains},
                               {"fake_gpus", record.fake_gpus}};
  return WriteFileAtomically(paths_.ClusterRecord(), json.dump() + "\n");
}

LocalCluster::Record LocalCluster::Wanted(const UpOptions& options, const Record& before) {
  return {options.nodes > 0 ? options.nodes : std::max(before.nodes, 1),
          options.slots > 0 ? options.slots : before.slots,
          options.netns.value_or(before.netns),
          options.allow_faults.value_or(before.allow_faults),
          options.failure_domains > 0 ? options.failure_domains : before.failure_domains,
          options.fake_gpus.empty() ? before.fake_gpus
                                    : fs::absolute(options.fake_gpus).lexically_normal().string()};
}

Status LocalCluster::CheckBinaries() const {
  for (const char* program : {"muster-coordinator", "muster-worker", "muster-guardian"}) {
    const std::string path = binary_dir_ + "/" + program;
    if (::access(path.c_str(), X_OK) != 0)
      return Internal("could not start a cluster: " + path +
                      " is missing; build all of Muster, or " +
                      "run the muster program in the directory of the others");
  }
  return OkStatus();
}

std::vector<std::string> LocalCluster::NodesOnDisk() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(paths_.NodesDir(), error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> LocalCluster::NodeNames() const {
  std::vector<std::string> names;
  for (int i = 1; i <= record_.nodes; ++i) names.push_back(LocalClusterNetwork::NodeName(i));
  return names;
}

// The places that have processes of the cluster: the hub, and nodes.
std::set<std::string> LocalCluster::PlacesInUse() const {
  std::set<std::string> places;
  if (LockedPidFileOwner(paths_.CoordinatorPid())) places.insert(kHubNamespace);
  if (group_.exists())
    for (const NamedProcess& coordinator : group_.Coordinators())
      places.insert(coordinator.program);
  for (const std::string& node : NodesOnDisk())
    if (LockedPidFileOwner(paths_.WorkerPid(node)) || !GuardiansOf(node).empty())
      places.insert(node);
  return places;
}

// Rejects changes that a running cluster cannot make.
Status LocalCluster::CheckChanges(const UpOptions& options, const Record& before) const {
  const auto running = [&](const std::string& what) {
    return FailedPrecondition("the cluster in " + paths_.dir + " already runs " + what +
                              "\n  next: muster down --dir " + ShellWord(paths_.dir));
  };
  if (record_.netns && !options.listen.empty())
    return InvalidArgument(
        "--listen and --netns exclude each other; with --netns clients use the socket in the "
        "cluster "
        "directory");
  const bool several = group_.exists() || !options.etcd.empty();
  if (several && (record_.netns || !options.listen.empty() || !options.http.empty()))
    return InvalidArgument(
        "--etcd excludes --netns, --listen and --http: each coordinator has its "
        "own ports, in DIR/coordinators.json");
  const std::vector<std::string> names = NodeNames();
  for (const std::string& node : NodesOnDisk())
    if (LockedPidFileOwner(paths_.WorkerPid(node)) &&
        std::find(names.begin(), names.end(), node) == names.end())
      return running(node + ", which is more than " + std::to_string(record_.nodes) + " nodes");
  if (PlacesInUse().empty()) return OkStatus();
  if (record_.netns != before.netns)
    return running(before.netns ? "in network namespaces" : "without network namespaces");
  if (record_.failure_domains != before.failure_domains)
    return running("with " + std::to_string(before.failure_domains) + " failure domains");
  if (record_.fake_gpus != before.fake_gpus)
    return running(before.fake_gpus.empty() ? "without --fake-gpus"
                                            : "with the GPUs of " + before.fake_gpus);
  if (record_.allow_faults != before.allow_faults)
    return running(before.allow_faults ? "with --allow-faults" : "without --allow-faults");
  return OkStatus();
}

Status LocalCluster::PrepareNetwork(const std::set<std::string>& in_use) {
  if (record_.netns) {
    MUSTER_RETURN_IF_ERROR(LocalClusterNetwork::CheckPossible());
    if (paths_.ClientSocket().size() > kMaxSocketPath)
      return InvalidArgument("the path " + paths_.ClientSocket() +
                             " is too long for a Unix socket; use a shorter --dir");
    return network_.Make(record_.nodes, in_use);
  }
  return in_use.empty() ? network_.Remove() : OkStatus();
}

Result<UpReport> LocalCluster::Up(const UpOptions& options) {
  if (!options.listen.empty()) {
    MUSTER_RETURN_IF_ERROR(CheckListenAddress(options.listen));
  }
  MUSTER_RETURN_IF_ERROR(CheckBinaries());
  if (const Status made = MakeDirectories(paths_.CoordinatorDir(), 0700); !made.ok())
    return Status(made.code(),
                  made.message() + "; a cluster keeps its store, keys and logs in " + paths_.dir +
                      "\n  next: choose a directory that can be written with --dir or MUSTER_DIR");
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, Lock());

  const Record before = ReadRecord();
  record_ = Wanted(options, before);
  group_.Find();
  MUSTER_RETURN_IF_ERROR(CheckChanges(options, before));
  MUSTER_RETURN_IF_ERROR(group_.Prepare({.coordinators = options.coordinators,
                                         .etcd = options.etcd,
                                         .is_old = before.nodes > 0,
                                         .is_stopped = PlacesInUse().empty()}));
  MUSTER_RETURN_IF_ERROR(WriteRecord(record_));

  UpReport report;
  const std::set<std::string> in_use = PlacesInUse();
  Status status = PrepareNetwork(in_use);
  if (status.ok()) status = StartAll(options, &report);
  if (status.ok()) return report;
  EndStarted();
  if (in_use.empty()) static_cast<void>(network_.Remove());
  return status;
}

Status LocalCluster::StartAll(const UpOptions& options, UpReport* report) {
  const Duration elections = group_.exists() ? Duration(kElectionsWithin) : Duration::zero();
  const Deadline deadline = Deadline::After(options.ready_within + elections);
  if (record_.netns) report->network_namespace = ClusterNamespace(paths_.dir, kHubNamespace);
  MUSTER_RETURN_IF_ERROR(group_.exists() ? StartCoordinators(options, report)
                                         : StartCoordinator(options, report));
  MUSTER_RETURN_IF_ERROR(StartWorkers(options, report));
  return WaitForNodes(NodeNames(), deadline, report);
}

Status LocalCluster::StartCoordinator(const UpOptions& options, UpReport* report) {
  const auto owner = LockedPidFileOwner(paths_.CoordinatorPid());
  if (owner) {
    const auto endpoint = client_.FindEndpoint();
    if (endpoint.ok() && !options.listen.empty() && !options.listen.ends_with(":0") &&
        options.listen != endpoint->grpc)
      return FailedPrecondition("the coordinator of " + paths_.dir + " already listens on " +
                                endpoint->grpc + "\n  next: muster down --dir " +
                                ShellWord(paths_.dir));
    return WaitForEndpoint(*owner, Deadline::After(options.ready_within));
  }
  report->started.push_back(kCoordinator);
  const std::string own_socket = "unix:" + paths_.ClientSocket();
  const std::string http = options.http.empty() ? kAnyPort : options.http;
  if (record_.netns) return StartCoordinatorAt(own_socket, http, options);
  if (!options.listen.empty()) return StartCoordinatorAt(options.listen, http, options);
  // The former port, so that clients with the old address find the new coordinator; any other port
  // when it is taken.
  const auto former = client_.FindEndpoint();
  if (!former.ok() || former->grpc == own_socket)
    return StartCoordinatorAt(kAnyPort, http, options);
  const std::string former_http = options.http.empty() ? former->http : http;
  if (StartCoordinatorAt(former->grpc, former_http, options).ok()) return OkStatus();
  if (client_.interrupt().requested()) return Cancelled("interrupted");
  return StartCoordinatorAt(kAnyPort, http, options);
}

Status LocalCluster::StartCoordinatorAt(const std::string& listen, const std::string& http,
                                        const UpOptions& options) {
  std::vector<std::string> argv = {
      binary_dir_ + "/muster-coordinator", "--dir", paths_.dir, "--listen", listen, "--http", http};
  if (record_.netns)
    argv.insert(argv.end(), {"--worker-listen", LocalClusterNetwork::CoordinatorAddress()});
  AddCommonFlags(options, &argv);
  MUSTER_RETURN_IF_ERROR(Start(kCoordinator, argv, paths_.CoordinatorLog()));
  const ProcessId process = started_.at(kCoordinator).id;
  const Status status = WaitForEndpoint(process, Deadline::After(options.ready_within));
  if (!status.ok()) {
    SignalProcess(process, SIGKILL);
    static_cast<void>(WaitUntilGone({process}, Deadline::After(std::chrono::seconds(2))));
    started_.erase(kCoordinator);
  }
  return status;
}

void LocalCluster::AddCommonFlags(const UpOptions& options, std::vector<std::string>* argv) const {
  if (record_.allow_faults) argv->push_back("--allow-faults");
  // A single node is on the coordinator's machine, and no other can probe it: its silence means
  // that the machine is busy.
  if (record_.nodes == 1) argv->insert(argv->end(), {"--lease", "60s"});
  if (!options.log_level.empty()) argv->insert(argv->end(), {"--log-level", options.log_level});
  if (!options.webhook_hosts.empty())
    argv->insert(argv->end(), {"--webhook-hosts", options.webhook_hosts});
}

// Which one leads is seen by the first call, which the nodes are waited for with.
Status LocalCluster::StartCoordinators(const UpOptions& options, UpReport* report) {
  for (CoordinatorGroup::Missing& missing :
       group_.FindMissing(binary_dir_ + "/muster-coordinator")) {
    if (missing.name.starts_with(kCoordinator)) AddCommonFlags(options, &missing.argv);
    MUSTER_RETURN_IF_ERROR(Start(missing.name, missing.argv, missing.log));
    report->started.push_back(missing.name);
  }
  report->coordinators = group_.local().Addresses();
  return OkStatus();
}

Status LocalCluster::WaitForEndpoint(const ProcessId& process, Deadline deadline) {
  std::string why;
  for (;;) {
    const auto endpoint = client_.FindEndpoint();
    if (endpoint.ok() && endpoint->pid == process.pid) {
      client_.Disconnect();
      const auto version = client_.Version();
      if (version.ok()) return OkStatus();
      why = ": " + version.status().message();
    } else if (!endpoint.ok()) {
      why = ": " + endpoint.status().message();
    }
    if (!IsAlive(process)) return DaemonEnded(kCoordinator, paths_.CoordinatorLog());
    // What to do about one that runs is not what to do about one that does not come up.
    if (deadline.Expired())
      return DeadlineExceeded("the coordinator (pid " + std::to_string(process.pid) +
                              ") does not answer; log: " + paths_.CoordinatorLog() +
                              why.substr(0, why.find("\n  next: ")) +
                              "\n  next: muster doctor --dir " + ShellWord(paths_.dir));
    if (client_.interrupt().WaitFor(kPoll)) return Cancelled("interrupted");
  }
}

Status LocalCluster::StartWorkers(const UpOptions& options, UpReport* report) {
  for (int i = 1; i <= record_.nodes; ++i) {
    const std::string node = LocalClusterNetwork::NodeName(i);
    if (LockedPidFileOwner(paths_.WorkerPid(node))) continue;
    MUSTER_RETURN_IF_ERROR(MakeDirectories(paths_.NodeDir(node), 0700));
    if (group_.exists())
      MUSTER_RETURN_IF_ERROR(group_.Issue(Role::kNode, node, paths_.NodeCredentials(node)));
    MUSTER_RETURN_IF_ERROR(Start(node, WorkerCommand(i, options), paths_.WorkerLog(node)));
    report->started.push_back(node);
  }
  return OkStatus();
}

std::vector<std::string> LocalCluster::WorkerCommand(int index, const UpOptions& options) const {
  std::vector<std::string> argv = {binary_dir_ + "/muster-worker", "--dir", paths_.dir, "--node",
                                   LocalClusterNetwork::NodeName(index)};
  if (record_.slots > 0) argv.insert(argv.end(), {"--slots", std::to_string(record_.slots)});
  if (record_.netns)
    argv.insert(argv.end(), {"--address", LocalClusterNetwork::NodeAddress(index), "--endpoint",
                             paths_.WorkersEndpoint()});
  if (group_.exists()) argv.insert(argv.end(), {"--coordinator", group_.local().Addresses()});
  // The nodes share the processors of this host: each may use all of them.
  argv.insert(argv.end(), {"--cpus", "0"});
  if (record_.nodes > 1) argv.push_back("--no-cpu-binding");
  if (record_.failure_domains > 0) {
    const int domain = (index - 1) * record_.failure_domains / record_.nodes + 1;
    argv.insert(argv.end(), {"--failure-domain", "domain-" + std::to_string(domain)});
  }
  if (!record_.fake_gpus.empty()) argv.insert(argv.end(), {"--fake-gpus", record_.fake_gpus});
  if (record_.allow_faults) argv.push_back("--allow-faults");
  if (!options.log_level.empty()) argv.insert(argv.end(), {"--log-level", options.log_level});
  return argv;
}

Status LocalCluster::WaitForNodes(const std::vector<std::string>& names, Deadline deadline,
                                  UpReport* report) {
  const Deadline own_leader_by = Deadline::After(kOwnLeaderWithin);
  for (;;) {
    auto nodes = client_.ListNodes();
    std::size_t ready = 0;
    std::set<std::string> waiting(names.begin(), names.end());
    if (nodes.ok())
      for (const auto& node : nodes->nodes()) {
        const bool wanted = std::find(names.begin(), names.end(), node.name()) != names.end();
        // A worker that was just killed may still be listed as ready; its pid distinguishes it.
        const auto started = started_.find(node.name());
        const bool same = started == started_.end() || started->second.id.pid == node.pid();
        if (!wanted || !same || !IsConnected(node.state())) continue;
        ++ready;
        waiting.erase(node.name());
      }
    if (ready == names.size()) {
      report->nodes = *std::move(nodes);
      report->ready = static_cast<int>(ready);
      MUSTER_ASSIGN_OR_RETURN(report->endpoint, group_.exists() ? FindLocalLeader(group_.local())
                                                                : client_.FindEndpoint());
      return OkStatus();
    }
    for (const auto& [name, started] : started_)
      if (!IsAlive(started.id)) return DaemonEnded(name, started.log);
    if (deadline.Expired())
      return DeadlineExceeded(std::to_string(ready) + " of " + std::to_string(names.size()) +
                              " nodes became ready in time; logs: " + paths_.CoordinatorLog() +
                              " and " + paths_.WorkerLog(names.back()) + LastWords(waiting) +
                              (nodes.ok() ? "" : "\n  | " + nodes.status().message()));
    // A channel that was refused once fails calls while it connects, and connects during calls
    // alone.
    if (!nodes.ok()) client_.Disconnect();
    if (!nodes.ok() && own_leader_by.Expired()) MUSTER_RETURN_IF_ERROR(CheckLeader());
    if (client_.interrupt().WaitFor(kPoll)) return Cancelled("interrupted");
  }
}

// In an etcd that others use too.
Status LocalCluster::CheckLeader() {
  if (!group_.exists()) return OkStatus();
  const std::vector<std::string>& own = group_.local().coordinators;
  const auto answers = client_.AskCoordinators();
  if (!answers.ok()) return OkStatus();
  for (const CoordinatorAnswer& answer : *answers) {
    const std::string& leader = answer.version.leader();
    if (leader.empty() || std::ranges::find(own, leader) != own.end()) continue;
    return FailedPrecondition("another cluster's coordinator, " + leader + ", leads in --etcd " +
                              group_.local().etcd +
                              "\n  next: export MUSTER_ETCD_PREFIX=/NAME/, and run this again");
  }
  return OkStatus();
}

// The newest lines of these nodes' workers: why they are not ready.
std::string LocalCluster::LastWords(const std::set<std::string>& nodes) const {
  std::string text;
  for (const std::string& node : nodes) {
    const auto started = started_.find(node);
    if (started == started_.end()) continue;
    for (const std::string& line : TailOfFile(started->second.log, 1, started->second.log_offset))
      text += "\n  | " + node + ": " + line;
  }
  return text;
}

Result<ProcessId> LocalCluster::StartInPlace(const std::string& name,
                                             const std::vector<std::string>& argv,
                                             const std::string& log) const {
  if (!record_.netns) return StartDaemon(argv, log);
  const std::string place = name == kCoordinator ? kHubNamespace : name;
  MUSTER_ASSIGN_OR_RETURN(const NamespaceScope scope,
                          NamespaceScope::Enter(ClusterNamespace(paths_.dir, place)));
  return StartDaemon(argv, log);
}

Status LocalCluster::Start(const std::string& name, const std::vector<std::string>& argv,
                           const std::string& log) {
  const std::int64_t offset = SizeOfFile(log);
  MUSTER_ASSIGN_OR_RETURN(const ProcessId process, StartInPlace(name, argv, log));
  started_.insert_or_assign(name, Started{process, log, offset});
  return OkStatus();
}

Status LocalCluster::DaemonEnded(const std::string& name, const std::string& log) const {
  const bool is_node = name.starts_with("node-");
  const std::string what = (is_node ? "the worker of " : "the ") + name;
  const auto started = started_.find(name);
  const std::int64_t offset = started == started_.end() ? 0 : started->second.log_offset;
  const std::vector<std::string> lines = TailOfFile(log, kLogLinesShown, offset);
  // A daemon that cannot start prints one last line, "muster-worker: REASON".
  if (!lines.empty() && lines.back().starts_with("muster-"))
    if (const std::size_t colon = lines.back().find(": "); colon != std::string::npos)
      return FailedPrecondition(what + " did not start: " + lines.back().substr(colon + 2) +
                                "\n  log: " + log);
  std::string message = what + " exited at startup; end of " + log + ":";
  for (const std::string& line : lines) message += "\n  | " + line;
  return Internal(message + "\n  next: muster doctor --dir " + ShellWord(paths_.dir));
}

void LocalCluster::EndStarted() {
  std::vector<ProcessId> ids;
  for (const auto& [name, started] : started_) ids.push_back(started.id);
  for (const ProcessId& id : ids) SignalProcess(id, SIGTERM);
  for (const ProcessId& id : WaitUntilGone(ids, Deadline::After(std::chrono::seconds(3))))
    SignalProcess(id, SIGKILL);
  static_cast<void>(WaitUntilGone(ids, Deadline::After(std::chrono::seconds(2))));
  started_.clear();
}

std::vector<NamedProcess> LocalCluster::Daemons() const {
  std::vector<NamedProcess> out;
  if (const auto owner = LockedPidFileOwner(paths_.CoordinatorPid()))
    out.push_back({*owner, "coordinator"});
  if (group_.exists())
    for (NamedProcess& coordinator : group_.Coordinators()) out.push_back(std::move(coordinator));
  for (const std::string& node : NodesOnDisk())
    if (const auto owner = LockedPidFileOwner(paths_.WorkerPid(node)))
      out.push_back({*owner, "worker " + node});
  return out;
}

std::vector<NamedProcess> LocalCluster::GuardiansOf(const std::string& node) const {
  const std::string boot_id = BootId();
  std::vector<NamedProcess> out;
  std::error_code error;
  for (const auto& job : fs::directory_iterator(paths_.JobsDir(node), error))
    if (const auto guardian = LivingGuardian(job.path().string() + "/guardian.json", boot_id))
      out.push_back(
          {*guardian, "guardian of job " + job.path().filename().string() + " on " + node});
  return out;
}

void LocalCluster::EndAll(const std::vector<NamedProcess>& processes, Duration grace,
                          DownReport* report) {
  std::vector<ProcessId> ids;
  for (const NamedProcess& process : processes) {
    ids.push_back(process.id);
    SignalProcess(process.id, grace > Duration::zero() ? SIGTERM : SIGKILL);
  }
  std::vector<ProcessId> left = WaitUntilGone(
      ids, Deadline::After(grace > Duration::zero() ? grace : Duration(kKillTimeout)));
  for (const ProcessId& id : left) SignalProcess(id, SIGKILL);
  left = WaitUntilGone(left, Deadline::After(kKillTimeout));
  for (const NamedProcess& process : processes) {
    const bool gone = !IsAlive(process.id);
    (gone ? report->ended : report->left).push_back(Described(process));
  }
}

Result<DownReport> LocalCluster::Down(Duration timeout) {
  DownReport report;
  std::error_code error;
  if (!fs::exists(paths_.dir, error)) return report;
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, Lock());

  group_.Find();
  // The coordinator and the workers first, so that they do not restart what ends below.
  EndAll(Daemons(), timeout, &report);

  std::vector<NamedProcess> guardians;
  for (const std::string& node : NodesOnDisk()) {
    const std::vector<NamedProcess> of_node = GuardiansOf(node);
    guardians.insert(guardians.end(), of_node.begin(), of_node.end());
  }
  std::vector<NamedProcess> ranks;
  for (const NamedProcess& guardian : guardians)
    for (const ProcessId& id : Descendants(guardian.id)) ranks.push_back({id, "rank process"});
  EndAll(guardians, timeout, &report);

  // A guardian ends its ranks; ranks that outlived it end here.
  std::vector<NamedProcess> rest;
  for (const NamedProcess& rank : ranks)
    if (IsAlive(rank.id)) rest.push_back(rank);
  EndAll(rest, Duration::zero(), &report);
  EndAll(ProcessesOfDirectory(paths_.dir), Duration::zero(), &report);
  if (network_.Exists()) {
    MUSTER_RETURN_IF_ERROR(network_.Remove());
    report.ended.push_back("network namespaces");
  }
  return report;
}

Status LocalCluster::CheckLink(const std::string& node) const { return network_.CheckLink(node); }

Status LocalCluster::SetLink(const std::string& node, bool up) {
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, Lock());
  return network_.SetLink(node, up);
}

}  // namespace muster
