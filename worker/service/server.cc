#include "worker/service/server.h"

#include <unistd.h>

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

std::string RandomInstance() {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

}  // namespace

WorkerServer::WorkerServer(WorkerOptions options, LockedRecord pid_file)
    : options_(std::move(options)), pid_file_(std::move(pid_file)) {}

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

Status WorkerServer::Listen() {
  const ClusterPaths paths{options_.cluster_dir};
  MUSTER_ASSIGN_OR_RETURN(
      http_,
      HttpServer::Listen(loop_, "127.0.0.1", static_cast<std::uint16_t>(options_.http_port)));
  http_->Handle("/metrics", [this](const std::string&) { return Metrics(); });
  http_->Handle("/healthz", [this](const std::string&) { return Health(); });
  jobs_pool_ = std::make_unique<WorkerPool>("jobs", kJobThreads, kPoolQueue);
  disk_pool_ = std::make_unique<WorkerPool>("disk", 1, kPoolQueue);
  runner_ = std::make_unique<AgentRunner>(
      loop_, *jobs_pool_, *disk_pool_,
      AgentRunnerOptions{
          .jobs_dir = paths.JobsDir(options_.node),
          .guardian_path = options_.guardian_path,
          .launch = {.trainer_path = options_.trainer_path,
                     .passed_through = PassedThroughVariables(),
                     .gpus = GpusOfNode(std::getenv("CUDA_VISIBLE_DEVICES"), "/dev")}},
      [this](const WorkerMessage& message) {
        if (session_) session_->Send(message);
      });
  const nlohmann::json record = {{"http", "127.0.0.1:" + std::to_string(http_->port())},
                                 {"pid", ::getpid()},
                                 {"slots", options_.slots}};
  return WriteFileAtomically(paths.WorkerRecord(options_.node), record.dump() + "\n");
}

Status WorkerServer::Run() {
  loop_.OnTerminationSignal([this](int signal) {
    Log().info("signal {}: stopping; guardians and ranks go on", signal);
    loop_.Stop();
  });
  loop_.Post([this] { runner_->Start([this] { Connect(); }); });
  Log().info("up, pid {}, {} slots, metrics on 127.0.0.1:{}", ::getpid(), options_.slots,
             http_->port());
  loop_.Run();
  return outcome_;
}

void WorkerServer::Stop() { loop_.Stop(); }

void WorkerServer::Connect() {
  CoordinatorSessionOptions options{.endpoint_path = options_.endpoint_path,
                                    .token_path = options_.token_path,
                                    .identity = {.node = options_.node,
                                                 .address = options_.address,
                                                 .host_id = BootId(),
                                                 .slots = options_.slots,
                                                 .pid = ::getpid(),
                                                 .metrics_port = http_->port(),
                                                 .instance = RandomInstance()}};
  session_ = std::make_unique<CoordinatorSession>(
      loop_, std::move(options),
      CoordinatorSession::Handlers{
          .hosted = [this] { return runner_->Hosted(); },
          .on_message = [this](const CoordinatorMessage& message) { runner_->Handle(message); },
          .on_fatal =
              [this](const Status& why) {
                outcome_ = why;
                loop_.Stop();
              }});
  session_->Start();
}

HttpResponse WorkerServer::Metrics() const {
  const WorkerStatus status{.node = options_.node,
                            .slots = options_.slots,
                            .connected = session_ && session_->connected(),
                            .connects = session_ ? session_->connects() : 0,
                            .dropped = session_ ? session_->dropped() : 0,
                            .refused = jobs_pool_->refused() + disk_pool_->refused(),
                            .jobs = runner_->Hosted().size()};
  return {.content_type = kMetricsContentType,
          .body = RenderWorkerMetrics(status, runner_->sampler().AllSeries(SystemClock().Now()))};
}

HttpResponse WorkerServer::Health() const {
  const nlohmann::json json = {
      {"status", "ok"}, {"node", options_.node}, {"connected", session_ && session_->connected()}};
  return {.content_type = "application/json", .body = json.dump() + "\n"};
}

}  // namespace muster::worker
