// WorkerServer: puts a worker together. The composition root of muster-worker, and of tests that
// run a worker in their own process.
//
// Members are declared in the order of their dependencies, so that destruction ends them rightly:
// the session lets go of gRPC first, the pools join before what their work uses is destroyed.
#pragma once

#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "common/telemetry/http_server.h"
#include "worker/agent/agent_runner.h"
#include "worker/process/record_file.h"
#include "worker/service/coordinator_session.h"

namespace muster::worker {

struct WorkerOptions {
  std::string cluster_dir;  // absolute
  std::string node;
  std::string address = "127.0.0.1";
  int slots = 0;
  std::string endpoint_path;
  std::string token_path;
  std::string trainer_path;
  std::string guardian_path;
  int http_port = 0;
};

class WorkerServer {
 public:
  // kAlreadyExists: a worker of this name runs in this directory.
  static Result<std::unique_ptr<WorkerServer>> Start(const WorkerOptions& options);
  ~WorkerServer();

  // Runs until a termination signal, Stop, or a coordinator that will never take this worker.
  // Guardians and ranks go on either way.
  Status Run();
  // Any thread.
  void Stop();

 private:
  WorkerServer(WorkerOptions options, LockedRecord pid_file);
  Status Listen();
  void Connect();
  HttpResponse Metrics() const;
  HttpResponse Health() const;

  const WorkerOptions options_;
  LockedRecord pid_file_;
  EventLoop loop_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<AgentRunner> runner_;
  std::unique_ptr<WorkerPool> disk_pool_;
  std::unique_ptr<WorkerPool> jobs_pool_;
  std::unique_ptr<CoordinatorSession> session_;
  Status outcome_;
};

}  // namespace muster::worker
