// WorkerServer: assembles a worker. The composition root of muster-worker, and of tests that run a
// worker in their own process.
//
// Members are declared in the order of their dependencies, so that destruction is safe: the session
// releases gRPC first, the pools join before what their work uses is destroyed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/base/locked_record.h"
#include "common/base/result.h"
#include "common/resources/node_inventory.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "common/security/revocation.h"
#include "common/telemetry/http_server.h"
#include "worker/agent/agent_runner.h"
#include "worker/fabric/cpu_topology.h"
#include "worker/fabric/node_devices.h"
#include "worker/health/dcgm_job_mapping.h"
#include "worker/health/gpu_figures.h"
#include "worker/health/health_monitor.h"
#include "worker/health/node_faults.h"
#include "worker/health/probe_port.h"
#include "worker/health/prober.h"
#include "worker/process/record_file.h"
#include "worker/service/coordinator_session.h"
#include "worker/service/enrolment.h"

namespace muster::worker {

struct WorkerOptions {
  std::string cluster_dir;  // absolute
  std::string node;
  std::string address = "127.0.0.1";
  std::vector<NodeDevice> devices;      // that jobs may get
  std::string device_locks;             // directory in which jobs lock them; absolute
  NodeInventory inventory;              // but for its devices
  std::vector<std::string> report;      // the lines of LookAtNode for this node
  CpuTopology cpus;                     // that ranks are bound to shares of; empty: to none
  std::vector<std::string> interfaces;  // for collectives; empty: the ranks choose
  int slots = 0;
  std::string endpoint_path;
  std::string token_path;
  // IP:PORT of those on other machines, of which one leads; none: from the endpoint file.
  std::vector<std::string> coordinators;
  std::string tls_dir;  // this node's credentials; empty: the token
  std::string trainer_path;
  std::string guardian_path;
  int http_port = 0;
  std::string failure_domain;  // rack, switch; empty: the host
  bool allow_faults = false;
  // After SIGTERM the coordinator is asked to drain the node, which ends when nothing runs any more
  // or after this many seconds. Empty: it ends at once, and guardians and ranks go on.
  std::optional<double> drain_on_term;
  std::string pilot;  // key of the pilot job (docs/pilots.md) that it runs in; empty: none
  HealthOptions health;
  // The scrape interval of /metrics: ended series stay there for three times as long.
  Duration scrape_interval = std::chrono::seconds(15);
  std::string dcgm_job_mapping_dir;  // dcgm-exporter's; empty: there is none
  bool gpu_basics = true;            // on /metrics, if no other exporter has them
  std::string slurm_job_id;          // that the worker runs in; empty: none
  // Socket of muster-launcher, which runs jobs as their owners, and its directory; empty: they run
  // as this process's user.
  std::string launcher;
  std::string launcher_dir;
};

class WorkerServer {
 public:
  // kAlreadyExists: a worker of this name runs in this directory.
  static Result<std::unique_ptr<WorkerServer>> Start(const WorkerOptions& options);
  ~WorkerServer();

  // Runs until a termination signal (and the drain that it may request) or Stop. Remaining
  // guardians and ranks go on.
  void Run();
  // Any thread.
  void Stop();

 private:
  WorkerServer(WorkerOptions options, LockedRecord pid_file);
  Status Listen();
  // HTTP on loopback, and if the node has another address, the same port there: with credentials
  // HTTP by TLS, without them only answers to probes.
  Status ListenHttp();
  Status ListenOutside();
  Status AuthorizePage(const std::string& path, const CertificateInfo& peer);
  void StartRunner();
  void Connect();
  void Send(WorkerMessage message);
  std::vector<HostedGeneration> Hosted();
  void OnMessage(const CoordinatorMessage& message);
  void OnFault(const InjectFault& fault);
  void OnSignal(int signal);
  void LeaveWhenIdle();
  // To dcgm-exporter, on a thread of its own.
  void ReportGpuUse();
  HttpResponse Metrics() const;
  HttpResponse Health() const;

  const WorkerOptions options_;
  const std::shared_ptr<CoordinatorAddresses> coordinators_ =
      std::make_shared<CoordinatorAddresses>(options_.coordinators);
  LockedRecord pid_file_;
  std::string directory_id_;
  EventLoop loop_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<HttpServer> tls_http_;
  std::unique_ptr<ProbePort> probe_port_;
  std::unique_ptr<RevocationFile> revocations_;  // with credentials
  std::unique_ptr<CertificateRenewal> renewal_;  // with credentials
  Prober prober_;
  NodeFaults faults_;
  HealthMonitor health_;
  GpuMonitor gpus_;
  std::unique_ptr<DcgmJobMapping> gpu_mapping_;  // used by gpu_use_pool_
  DcgmJobMapping::RunsOfGpu gpu_use_;            // last written
  std::unique_ptr<AgentRunner> runner_;
  std::unique_ptr<WorkerPool> gpu_use_pool_;
  std::unique_ptr<CoordinatorSession> session_;
  Timer leave_timer_;
  TimePoint asked_to_leave_{};           // by that signal
  std::optional<TimePoint> leave_by_;    // set by the signal that begins a drain
  std::optional<TimePoint> idle_since_;  // while it drains
};

}  // namespace muster::worker
