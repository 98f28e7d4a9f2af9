#include "worker/allocation/node_programs.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "common/telemetry/log.h"
#include "worker/allocation/allocation_security.h"

namespace muster::worker {
namespace {

constexpr std::chrono::milliseconds kFirstRestart{100};
constexpr std::chrono::seconds kLongestRestart{5};

}  // namespace

NodePrograms::NodePrograms(EventLoop& loop, WorkerPool& spawner, NodeProgramsOptions options,
                           CoordinatorChild::Handlers handlers)
    : loop_(loop),
      spawner_(spawner),
      options_(std::move(options)),
      local_{options_.local_dir},
      handlers_(std::move(handlers)),
      worker_pause_(kFirstRestart),
      worker_timer_(loop),
      coordinator_log_(LogOf("coordinator"),
                       options_.logs_dir + "/coordinator-" + options_.node + ".log"),
      worker_log_(LogOf("worker"), options_.logs_dir + "/worker-" + options_.node + ".log") {}

std::string NodePrograms::LogOf(const std::string& program) const {
  return options_.local_dir + "/" + program + ".log";
}

Status NodePrograms::CarryLogs() {
  MUSTER_RETURN_IF_ERROR(coordinator_log_.Carry());
  return worker_log_.Carry();
}

// --- coordinator ---

std::vector<std::string> NodePrograms::CoordinatorCommand() const {
  const std::string any_port = JoinAddress({options_.address, 0});
  return {options_.binary_dir + "/muster-coordinator",
          "--dir",
          options_.local_dir,
          "--journal",
          options_.journal,
          "--listen",
          "127.0.0.1:0",
          "--tls-listen",
          any_port,
          "--tls-http",
          any_port,
          "--tls",
          CoordinatorCredentials(options_.local_dir),
          "--lease",
          std::to_string(options_.lease_seconds) + "s",
          "--log-level",
          options_.log_level};
}

void NodePrograms::StartCoordinator() {
  if (ending_) return;
  Log().info("starting a coordinator on this node");
  coordinator_ = std::make_unique<CoordinatorChild>(
      loop_, spawner_,
      CoordinatorChild::Options{.argv = CoordinatorCommand(),
                                .endpoint_path = local_.Endpoint(),
                                .log_path = LogOf("coordinator")},
      CoordinatorChild::Handlers{.on_up = handlers_.on_up,
                                 .on_down = [this](const std::string& why) {
                                   coordinator_.reset();
                                   handlers_.on_down(why);
                                 }});
}

// --- worker ---

std::vector<std::string> NodePrograms::WorkerCommand() const {
  std::vector<std::string> command = {options_.binary_dir + "/muster-worker",
                                      "--dir",
                                      options_.local_dir,
                                      "--node",
                                      options_.node,
                                      "--address",
                                      options_.address,
                                      "--endpoint",
                                      options_.local_dir + "/endpoint.json",
                                      "--tls",
                                      NodeCredentials(options_.local_dir),
                                      "--log-level",
                                      options_.log_level};
  command.insert(command.end(), options_.worker_arguments.begin(), options_.worker_arguments.end());
  return command;
}

void NodePrograms::Follow(const Leadership& leadership, bool own) {
  Endpoint endpoint;
  if (const auto local = own ? ReadEndpoint(local_.Endpoint()) : NotFound("elsewhere"); local.ok())
    endpoint = *local;
  endpoint.grpc_tls = leadership.grpc;
  endpoint.http_tls = leadership.http;
  endpoint.epoch = leadership.epoch;
  const Status written = WriteEndpoint(options_.local_dir + "/endpoint.json", endpoint);
  if (!written.ok())
    Log().error("this node's worker cannot be pointed there: {}", written.message());
  if (options_.has_worker && !ending_ && !std::exchange(follows_, true)) StartWorker();
}

void NodePrograms::StartWorker() {
  worker_started_ = SystemClock().Now();
  worker_ = std::make_unique<ChildProcess>(loop_, spawner_, WorkerCommand(), LogOf("worker"),
                                           [this](const ProcessExit& exit) { OnWorkerExit(exit); });
}

void NodePrograms::OnWorkerExit(const ProcessExit& exit) {
  worker_.reset();
  if (ending_) return;
  const bool sound = SystemClock().Now() - worker_started_ > kLongestRestart * 2;
  worker_pause_ = sound ? kFirstRestart : std::min<Duration>(worker_pause_ * 2, kLongestRestart);
  Log().error("this node's worker ended with {}; another is started", DescribeExit(exit));
  worker_timer_.Start(worker_pause_, [this] { StartWorker(); });
}

// --- the end ---

void NodePrograms::End() {
  ending_ = true;
  worker_timer_.Cancel();
  if (worker_) worker_->Signal(SIGINT);
  if (coordinator_) coordinator_->End();
}

void NodePrograms::Kill() {
  coordinator_.reset();
  worker_.reset();
}

}  // namespace muster::worker
