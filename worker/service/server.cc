#include "worker/service/server.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "common/base/cluster_paths.h"
#include "common/base/files.h"
#include "common/base/proc_reader.h"
#include "common/telemetry/log.h"
#include "common/telemetry/metrics.h"
#include "worker/service/metrics.h"

namespace muster::worker {
namespace {

constexpr int kJobThreads = 3;
constexpr std::size_t kPoolQueue = 256;
constexpr int kPortAttempts = 8;
constexpr std::chrono::milliseconds kLeaveInterval{100};
// The coordinator commits the last checkpoint and asks for its manifest when the ranks have ended.
constexpr std::chrono::seconds kIdleBeforeLeaving{1};

std::string RandomInstance() {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

}  // namespace

WorkerServer::WorkerServer(WorkerOptions options, LockedRecord pid_file)
    : options_(std::move(options)),
      pid_file_(std::move(pid_file)),
      prober_(loop_, [this](const ProbeResult& result) { Send(result); }),
      faults_(loop_, ClusterPaths{options_.cluster_dir}.JobsDir(options_.node)),
      health_(loop_, options_.health, [this](const NodeNotice& notice) { Send(notice); }),
      leave_timer_(loop_) {}

Result<std::unique_ptr<WorkerServer>> WorkerServer::Start(const WorkerOptions& options) {
  const ClusterPaths paths{options.cluster_dir};
  MUSTER_RETURN_IF_ERROR(MakeDirectories(paths.JobsDir(options.node)));
  auto pid_file = LockedRecord::Acquire(paths.WorkerPid(options.node));
  if (!pid_file.ok()) {
    if (pid_file.status().code() != StatusCode::kAlreadyExists) return pid_file.status();
    return AlreadyExists("a worker named '" + options.node + "' is running in " +
                         options.cluster_dir + " (" + paths.WorkerPid(options.node) +
                         " is locked); stop it, or give this one another --node");
  }
  MUSTER_RETURN_IF_ERROR(pid_file->Write(std::to_string(::getpid()) + "\n"));
  std::unique_ptr<WorkerServer> server(new WorkerServer(options, *std::move(pid_file)));
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
    auto probe_port = ProbePort::Listen(loop_, options_.address, http_->port());
    if (probe_port.ok()) {
      probe_port_ = *std::move(probe_port);
      break;
    }
    // Somebody else has that number at the address: another one may be free at both.
    const bool again = probe_port.status().code() == StatusCode::kAlreadyExists &&
                       options_.http_port == 0 && attempt + 1 < kPortAttempts;
    if (again) continue;
    Log().warn("other workers cannot tell whether this one lives: {}; check --address",
               probe_port.status().message());
    break;
  }
  http_->Handle("/metrics", [this](const std::string&) { return Metrics(); });
  http_->Handle("/healthz", [this](const std::string&) { return Health(); });
  return OkStatus();
}

void WorkerServer::StartRunner() {
  const ClusterPaths paths{options_.cluster_dir};
  jobs_pool_ = std::make_unique<WorkerPool>("jobs", kJobThreads, kPoolQueue);
  disk_pool_ = std::make_unique<WorkerPool>("disk", 1, kPoolQueue);
  runner_ = std::make_unique<AgentRunner>(
      loop_, *jobs_pool_, *disk_pool_,
      AgentRunnerOptions{.jobs_dir = paths.JobsDir(options_.node),
                         .guardian_path = options_.guardian_path,
                         .launch = {.trainer_path = options_.trainer_path,
                                    .passed_through = PassedThroughVariables(),
                                    .gpus = GpusOfNode(std::getenv("CUDA_VISIBLE_DEVICES"), "/dev"),
                                    .address = options_.address,
                                    .interfaces = options_.interfaces}},
      [this](WorkerMessage message) { Send(std::move(message)); });
}

Status WorkerServer::Listen() {
  MUSTER_RETURN_IF_ERROR(ListenHttp());
  StartRunner();
  const nlohmann::json record = {{"http", "127.0.0.1:" + std::to_string(http_->port())},
                                 {"pid", ::getpid()},
                                 {"slots", options_.slots}};
  return WriteFileAtomically(ClusterPaths{options_.cluster_dir}.WorkerRecord(options_.node),
                             record.dump() + "\n");
}

Status WorkerServer::Run() {
  loop_.OnTerminationSignal([this](int signal) { OnSignal(signal); });
  loop_.Post([this] {
    health_.Start();
    runner_->Start([this] { Connect(); });
  });
  Log().info("up, pid {}, {} slots, metrics on 127.0.0.1:{}", ::getpid(), options_.slots,
             http_->port());
  loop_.Run();
  return outcome_;
}

void WorkerServer::Stop() { loop_.Stop(); }

void WorkerServer::OnSignal(int signal) {
  const bool drain = signal == SIGTERM && options_.drain_on_term && !leave_by_;
  if (!drain) {
    Log().info("signal {}: stopping; guardians and ranks go on", signal);
    loop_.Stop();
    return;
  }
  const double seconds = *options_.drain_on_term;
  Log().info("signal {}: asking the coordinator to drain this node, {} s at most", signal, seconds);
  leave_by_ = SystemClock().Now() + FromSeconds(seconds);
  health_.AskToDrain("the worker was asked to end (SIGTERM)", seconds);
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
    Log().info(idle ? "nothing runs on this node any more: leaving"
                    : "the time to drain is over: leaving; guardians and ranks go on");
    loop_.Stop();
    return;
  }
  leave_timer_.Start(kLeaveInterval, [this] { LeaveWhenIdle(); });
}

void WorkerServer::Connect() {
  CoordinatorSessionOptions options{.endpoint_path = options_.endpoint_path,
                                    .token_path = options_.token_path,
                                    .identity = {.node = options_.node,
                                                 .address = options_.address,
                                                 .host_id = BootId(),
                                                 .slots = options_.slots,
                                                 .pid = ::getpid(),
                                                 .metrics_port = http_->port(),
                                                 .instance = RandomInstance(),
                                                 .failure_domain = options_.failure_domain,
                                                 .allows_faults = options_.allow_faults}};
  session_ = std::make_unique<CoordinatorSession>(
      loop_, std::move(options),
      CoordinatorSession::Handlers{
          .hosted = [this] { return Hosted(); },
          .on_message = [this](const CoordinatorMessage& message) { OnMessage(message); },
          .on_fatal =
              [this](const Status& why) {
                outcome_ = why;
                loop_.Stop();
              }});
  session_->Start();
}

void WorkerServer::Send(WorkerMessage message) {
  if (const auto* started = std::get_if<RankStarted>(&message)) health_.OnRankStarted(*started);
  if (auto* exited = std::get_if<RankExited>(&message)) health_.Complete(exited);
  if (const auto* released = std::get_if<Released>(&message)) health_.OnJobReleased(released->job);
  if (session_) session_->Send(message);
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
  // After the Hello, so that a notice finds the node known.
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
                            .slots = options_.slots,
                            .connected = session_ && session_->connected(),
                            .connects = session_ ? session_->connects() : 0,
                            .dropped = session_ ? session_->dropped() : 0,
                            .refused = jobs_pool_->refused() + disk_pool_->refused(),
                            .jobs = runner_->Hosted().size(),
                            .sampling = runner_->sampler().totals(),
                            .probes = prober_.totals(),
                            .notices = health_.board().counts(),
                            .xids = health_.xids(),
                            .oom_kills = health_.oom_kills()};
  return {.content_type = kMetricsContentType,
          .body = RenderWorkerMetrics(status, runner_->sampler().AllSeries(SystemClock().Now()))};
}

HttpResponse WorkerServer::Health() const {
  const nlohmann::json json = {
      {"status", "ok"}, {"node", options_.node}, {"connected", session_ && session_->connected()}};
  return {.content_type = "application/json", .body = json.dump() + "\n"};
}

}  // namespace muster::worker
