#include "worker/service/server.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <utility>

#include "common/base/cluster_paths.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/proc_reader.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "common/rpc/endpoint.h"
#include "common/security/credentials.h"
#include "common/telemetry/log.h"
#include "common/telemetry/metrics.h"
#include "worker/process/device_lock.h"
#include "worker/service/metrics.h"
#include "worker/service/secret_fetch.h"

namespace muster::worker {
namespace {

constexpr std::size_t kGpuUseQueue = 16;
constexpr int kPortAttempts = 8;
constexpr std::chrono::milliseconds kLeaveInterval{100};
// The coordinator commits the last checkpoint and requests its manifest when the ranks have ended.
constexpr std::chrono::seconds kIdleBeforeLeaving{1};
constexpr std::chrono::seconds kOneNotice{5};  // within which a second SIGTERM is the first one

double RandomFraction() {
  std::random_device random;
  return std::uniform_real_distribution<>()(random);
}

std::string RandomInstance() {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

// The id of a worker's directory; new if there is none.
Result<std::string> LoadOrCreateId(const std::string& path) {
  const auto known = ReadFile(path, 64);
  if (known.ok() && !known->empty()) return *known;
  std::string id = RandomInstance();
  MUSTER_RETURN_IF_ERROR(WriteFileAtomically(path, id));
  return id;
}

// What ends every process of the node with it: a container, and a run of a Slurm job.
std::string ContainerId() {
  std::error_code ignored;
  std::string id = std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  // The kernel uses the number of a PID namespace again.
  if (const auto first = ReadProcess(1); first.ok()) id += "/" + std::to_string(first->start_time);
  for (const char* variable : {"SLURM_JOB_ID", "SLURM_RESTART_COUNT"})
    if (const char* value = std::getenv(variable)) id += "/" + std::string(value);
  return CutText(id, 128);
}

// An expired certificate does not end the worker: the log has what to do, and ranks go on.
Status CheckCredentials(const WorkerOptions& options) {
  MUSTER_RETURN_IF_ERROR(MendCredentials(options.tls_dir));
  const Result<Credentials> credentials = LoadCredentials(options.tls_dir);
  if (!credentials.ok())
    return credentials.status().WithContext(
        "this node's credentials (--tls; --join TOKEN makes them)");
  const Identity& identity = credentials->identity;
  if (identity.role != Role::kNode || identity.name != options.node)
    return FailedPrecondition("the certificate in " + options.tls_dir + " is the one of " +
                              IdentityUri(identity) + ", not of node '" + options.node +
                              "'; name other credentials with --tls, or none");
  return OkStatus();
}

NodeInventory InventoryOf(const WorkerOptions& options) {
  NodeInventory inventory = options.inventory;
  for (const NodeDevice& one : options.devices) inventory.devices.push_back(one.device);
  return inventory;
}

// The GPUs that ranks of this worker get.
std::vector<int> GpuIndices(const std::vector<NodeDevice>& devices) {
  std::set<int> indices;
  for (const NodeDevice& one : devices) indices.insert(one.gpu_index);
  return {indices.begin(), indices.end()};
}

}  // namespace

WorkerServer::WorkerServer(WorkerOptions options, LockedRecord pid_file)
    : options_(std::move(options)),
      pid_file_(std::move(pid_file)),
      prober_(loop_, [this](const ProbeResult& result) { Send(result); }),
      faults_(loop_, ClusterPaths{options_.cluster_dir}.JobsDir(options_.node)),
      health_(loop_, options_.health, [this](const NodeNotice& notice) { Send(notice); }),
      gpus_(loop_, options_.health.nvml, options_.scrape_interval / 3),
      leave_timer_(loop_) {}

Result<std::unique_ptr<WorkerServer>> WorkerServer::Start(const WorkerOptions& options) {
  const ClusterPaths paths{options.cluster_dir};
  MUSTER_RETURN_IF_ERROR(MakePrivateTree(paths.NodeDir(options.node)));
  MUSTER_RETURN_IF_ERROR(MakeDirectories(paths.JobsDir(options.node), kPrivateDirectory));
  MUSTER_RETURN_IF_ERROR(MakeDirectories(paths.DevicesDir(options.node), kPrivateDirectory));
  auto pid_file = LockedRecord::Acquire(paths.WorkerPid(options.node));
  if (!pid_file.ok()) {
    if (pid_file.status().code() != StatusCode::kAlreadyExists) return pid_file.status();
    return AlreadyExists("a worker named '" + options.node + "' is running in " +
                         options.cluster_dir + " (" + paths.WorkerPid(options.node) +
                         " is locked); stop it, or give this one another --node");
  }
  for (const NodeDevice& one : options.devices)
    MUSTER_RETURN_IF_ERROR(OpenDeviceLock(options.device_locks, one.device.id)
                               .status()
                               .WithContext("no job could lock GPU " + one.device.id +
                                            " in this directory (--device-locks)"));
  MUSTER_RETURN_IF_ERROR(pid_file->Write(std::to_string(::getpid()) + "\n"));
  std::unique_ptr<WorkerServer> server(new WorkerServer(options, *std::move(pid_file)));
  MUSTER_ASSIGN_OR_RETURN(server->directory_id_, LoadOrCreateId(paths.NodeId(options.node)));
  MUSTER_RETURN_IF_ERROR(server->Listen());
  return server;
}

WorkerServer::~WorkerServer() = default;

Status WorkerServer::ListenHttp() {
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    MUSTER_ASSIGN_OR_RETURN(
        http_,
        HttpServer::Listen(loop_, "127.0.0.1", static_cast<std::uint16_t>(options_.http_port)));
    if (!NeedsProbePort(options_.address)) break;
    const Status outside = ListenOutside();
    if (outside.ok()) break;
    // Another program has that port at the address: another one may be free at both.
    const bool again = outside.code() == StatusCode::kAlreadyExists && options_.http_port == 0 &&
                       attempt + 1 < kPortAttempts;
    if (again) continue;
    Log().warn("other workers cannot tell whether this one lives: {}; check --address",
               outside.message());
    break;
  }
  for (HttpServer* server : {http_.get(), tls_http_.get()}) {
    if (server == nullptr) continue;
    server->Handle("/metrics", [this](const std::string&) { return Metrics(); });
    server->Handle("/healthz", [this](const std::string&) { return Health(); });
  }
  return OkStatus();
}

Status WorkerServer::ListenOutside() {
  // A name may resolve to several addresses, and HTTP is bound to one.
  if (!options_.tls_dir.empty() && CheckTlsListenAddress(options_.address + ":0").ok()) {
    revocations_ = std::make_unique<RevocationFile>(options_.tls_dir + "/revoked.json");
    MUSTER_ASSIGN_OR_RETURN(
        tls_http_, HttpServer::ListenTls(loop_, options_.address, http_->port(),
                                         {options_.tls_dir, [this](const std::string& path,
                                                                   const CertificateInfo* peer) {
                                            return AuthorizePage(path, *peer);
                                          }}));
    return OkStatus();
  }
  MUSTER_ASSIGN_OR_RETURN(probe_port_, ProbePort::Listen(loop_, options_.address, http_->port()));
  return OkStatus();
}

Status WorkerServer::AuthorizePage(const std::string& path, const CertificateInfo& peer) {
  if (const Result<bool> changed = revocations_->Refresh(); !changed.ok()) return changed.status();
  MUSTER_RETURN_IF_ERROR(revocations_->list().Check(peer));
  const Role role = peer.identity.role;
  if (role == Role::kScraper || role == Role::kAdmin) return OkStatus();
  return PermissionDenied("the certificate of a " + std::string(RoleWord(role)) + " may not read " +
                          path);
}

void WorkerServer::StartRunner() {
  const ClusterPaths paths{options_.cluster_dir};
  std::map<std::string, std::string> passed_through = PassedThroughVariables();
  // These are the worker's own.
  if (!options_.launcher.empty())
    for (const char* name : {"HOME", "USER", "TMPDIR"}) passed_through.erase(name);
  gpu_use_pool_ = std::make_unique<WorkerPool>("gpu-use", 1, kGpuUseQueue);
  runner_ = std::make_unique<AgentRunner>(
      loop_,
      AgentRunnerOptions{
          .jobs_dir = paths.JobsDir(options_.node),
          .devices_dir = options_.device_locks,
          .launch = {.trainer_path = options_.trainer_path,
                     .guardian_path = options_.guardian_path,
                     .passed_through = std::move(passed_through),
                     .devices = options_.devices,
                     .address = options_.address,
                     .interfaces = options_.interfaces,
                     .cpus = options_.cpus,
                     .slots = options_.slots,
                     .launcher_dir = options_.launcher_dir},
          .fetch_secrets =
              [where = CoordinatorSessionOptions{.endpoint_path = options_.endpoint_path,
                                                 .coordinators = coordinators_,
                                                 .token_path = options_.token_path,
                                                 .tls_dir = options_.tls_dir,
                                                 .identity = {.node = {options_.node}}}](
                  const JobId& job, Generation generation) {
                return FetchSecretsOf(where, job, generation);
              },
          .launcher = options_.launcher,
          .scrape_interval = options_.scrape_interval},
      [this](WorkerMessage message) { Send(std::move(message)); });
}

Status WorkerServer::Listen() {
  if (!options_.tls_dir.empty()) MUSTER_RETURN_IF_ERROR(CheckCredentials(options_));
  MUSTER_RETURN_IF_ERROR(ListenHttp());
  if (!options_.tls_dir.empty()) {
    renewal_ = std::make_unique<CertificateRenewal>(
        loop_,
        RenewalOptions{
            options_.tls_dir,
            [coordinators = coordinators_, path = options_.endpoint_path]() -> Result<std::string> {
              MUSTER_ASSIGN_OR_RETURN(const Endpoint endpoint,
                                      FindCoordinator(*coordinators, path));
              return endpoint.grpc_tls;
            }},
        RandomFraction());
  }
  StartRunner();
  if (!options_.dcgm_job_mapping_dir.empty()) {
    gpu_mapping_ = std::make_unique<DcgmJobMapping>(options_.dcgm_job_mapping_dir,
                                                    GpuIndices(options_.devices));
    MUSTER_RETURN_IF_ERROR(
        gpu_mapping_->Begin().WithContext("dcgm-exporter's folder (--dcgm-job-mapping-dir)"));
  }
  const nlohmann::json record = {{"http", "127.0.0.1:" + std::to_string(http_->port())},
                                 {"pid", ::getpid()},
                                 {"slots", options_.slots}};
  return WriteFileAtomically(ClusterPaths{options_.cluster_dir}.WorkerRecord(options_.node),
                             record.dump() + "\n");
}

void WorkerServer::Run() {
  loop_.OnTerminationSignal([this](int signal) { OnSignal(signal); });
  loop_.Post([this] {
    health_.Start();
    gpus_.Start();
    if (renewal_) renewal_->Start();
    runner_->Start([this] { Connect(); });
  });
  Log().info("up, pid {}, {} slots, metrics on 127.0.0.1:{}", ::getpid(), options_.slots,
             http_->port());
  loop_.Run();
}

void WorkerServer::Stop() { loop_.Stop(); }

void WorkerServer::OnSignal(int signal) {
  // Slurm signals a pilot job's script or all its descendants, and the script passes it on.
  if (signal == SIGTERM && leave_by_ && !options_.pilot.empty() &&
      SystemClock().Now() - asked_to_leave_ < kOneNotice)
    return;
  const bool drain = signal == SIGTERM && options_.drain_on_term && !leave_by_;
  if (!drain) {
    Log().info("signal {}: stopping; guardians and ranks go on", signal);
    loop_.Stop();
    return;
  }
  const double seconds = *options_.drain_on_term;
  Log().info("signal {}: asking the coordinator to drain this node, {} s at most", signal, seconds);
  asked_to_leave_ = SystemClock().Now();
  leave_by_ = asked_to_leave_ + FromSeconds(seconds);
  const bool by_pilot = !options_.pilot.empty();
  const std::string who = by_pilot ? "its pilot job" : "the worker";
  health_.AskToDrain(who + " was asked to end (SIGTERM)", seconds, by_pilot);
  LeaveWhenIdle();
}

void WorkerServer::LeaveWhenIdle() {
  const TimePoint now = SystemClock().Now();
  const auto hosted = runner_->Hosted();
  const bool idle = std::all_of(hosted.begin(), hosted.end(), [](const HostedGeneration& one) {
    return one.quiesced && !one.keeps_any();
  });
  if (!idle) idle_since_.reset();
  if (idle && !idle_since_) idle_since_ = now;
  if (now >= *leave_by_ || (idle && now - *idle_since_ >= kIdleBeforeLeaving)) {
    Log().info("{}", idle ? "nothing runs on this node any more: leaving"
                          : "the time to drain is over: leaving; guardians and ranks go on");
    loop_.Stop();
    return;
  }
  leave_timer_.Start(kLeaveInterval, [this] { LeaveWhenIdle(); });
}

void WorkerServer::Connect() {
  CoordinatorSessionOptions options{
      .endpoint_path = options_.endpoint_path,
      .coordinators = coordinators_,
      .token_path = options_.token_path,
      .tls_dir = options_.tls_dir,
      .epoch_path = ClusterPaths{options_.cluster_dir}.EpochMet(options_.node),
      .identity = {.protocol_version = kProtocols.max,
                   .min_protocol_version = kProtocols.min,
                   .version = kVersion,
                   .node = {options_.node},
                   .address = options_.address,
                   .host_id = BootId(),
                   .slots = options_.slots,
                   .pid = ::getpid(),
                   .metrics_port = http_->port(),
                   .instance = RandomInstance(),
                   .failure_domain = options_.failure_domain,
                   .allows_faults = options_.allow_faults,
                   .pilot = options_.pilot,
                   .report = options_.report,
                   .inventory = InventoryOf(options_),
                   .directory_id = directory_id_,
                   .container_id = ContainerId(),
                   .versions = OwnVersions()}};
  session_ = std::make_unique<CoordinatorSession>(
      loop_, std::move(options),
      CoordinatorSession::Handlers{
          .hosted = [this] { return Hosted(); },
          .on_message = [this](const CoordinatorMessage& message) { OnMessage(message); }});
  session_->Start();
}

void WorkerServer::Send(WorkerMessage message) {
  if (const auto* started = std::get_if<RankStarted>(&message)) health_.OnRankStarted(*started);
  if (auto* exited = std::get_if<RankExited>(&message)) health_.Complete(exited);
  if (const auto* released = std::get_if<Released>(&message)) health_.OnJobReleased(released->job);
  const bool uses_change =
      std::holds_alternative<RankStarted>(message) || std::holds_alternative<RankExited>(message) ||
      std::holds_alternative<Quiesced>(message) || std::holds_alternative<Released>(message);
  if (session_) session_->Send(message);
  if (gpu_mapping_ && uses_change) loop_.Post([this] { ReportGpuUse(); });
}

void WorkerServer::ReportGpuUse() {
  DcgmJobMapping::RunsOfGpu use;
  for (const GpuUse& one : runner_->GpusInUse())
    if (const NodeDevice* device = FindDevice(options_.devices, one.device))
      use[device->gpu_index].insert(one.job.value);
  if (use == gpu_use_) return;
  const bool taken = gpu_use_pool_->TrySubmit([mapping = gpu_mapping_.get(), use] {
    if (const Status status = mapping->Set(use); !status.ok())
      Log().warn("cannot report to dcgm-exporter which jobs use which GPUs: {}", status.message());
  });
  if (taken) gpu_use_ = std::move(use);
}

std::vector<HostedGeneration> WorkerServer::Hosted() {
  std::vector<HostedGeneration> hosted = runner_->Hosted();
  for (const HostedGeneration& one : hosted)
    for (const RankStarted& started : one.started) health_.OnRankStarted(started);
  health_.Complete(&hosted);
  return hosted;
}

void WorkerServer::OnMessage(const CoordinatorMessage& message) {
  if (const auto* probe = std::get_if<Probe>(&message)) return prober_.Start(*probe);
  if (const auto* fault = std::get_if<InjectFault>(&message);
      fault != nullptr && (fault->job.empty() || !options_.allow_faults))
    return OnFault(*fault);
  runner_->Handle(message);
  // After the Hello, so that the node is known when a notice arrives.
  if (std::holds_alternative<Welcome>(message)) health_.OnConnected();
}

void WorkerServer::OnFault(const InjectFault& fault) {
  const Status status = options_.allow_faults
                            ? faults_.Inject(fault.kind)
                            : PermissionDenied("node " + options_.node +
                                               " takes no faults: its worker was started "
                                               "without --allow-faults");
  Send(FaultDone{fault.request_id, status.message()});
}

HttpResponse WorkerServer::Metrics() const {
  const WorkerStatus status{.node = options_.node,
                            .slurm_job_id = options_.slurm_job_id,
                            .slots = options_.slots,
                            .connected = session_ && session_->connected(),
                            .version_refused = session_ && session_->version_refused(),
                            .connects = session_ ? session_->connects() : 0,
                            .dropped = session_ ? session_->dropped() : 0,
                            .refused = runner_->refused() + gpu_use_pool_->refused(),
                            .dropped_log_lines = DroppedLogLines(),
                            .jobs = runner_->Hosted().size(),
                            .sampling = runner_->sampler().totals(),
                            .probes = prober_.totals(),
                            .notices = health_.board().counts(),
                            .xids = health_.xids(),
                            .oom_kills = health_.oom_kills(),
                            .certificate_not_after_ms = renewal_ ? renewal_->not_after_ms() : 0,
                            .certificate_renewals = renewal_ ? renewal_->renewals() : 0,
                            .certificate_failures = renewal_ ? renewal_->failures() : 0,
                            .gpus = gpus_.newest(),
                            .gpu_basics = options_.gpu_basics};
  return {.content_type = kMetricsContentType,
          .body = RenderWorkerMetrics(status, runner_->sampler().AllSeries(SystemClock().Now()))};
}

HttpResponse WorkerServer::Health() const {
  nlohmann::json json = {
      {"status", "ok"}, {"node", options_.node}, {"connected", session_ && session_->connected()}};
  if (session_ && !session_->problem().empty()) json["problem"] = session_->problem();
  return {.content_type = "application/json", .body = json.dump() + "\n"};
}

}  // namespace muster::worker
