#include "coordinator/server.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "common/base/cluster_paths.h"
#include "common/base/files.h"
#include "common/base/version.h"
#include "common/job_spec/parse.h"
#include "common/process/network_namespace.h"
#include "common/rpc/token.h"
#include "common/runtime/event_loop.h"
#include "common/telemetry/http_server.h"
#include "common/telemetry/log.h"
#include "common/telemetry/metrics.h"
#include "coordinator/metrics.h"
#include "coordinator/on_event/on_event_runner.h"
#include "coordinator/pid_file.h"
#include "coordinator/service/client_service.h"
#include "coordinator/service/controller_host.h"
#include "coordinator/service/grpc_server.h"
#include "coordinator/service/watch_hub.h"
#include "coordinator/service/worker_service.h"
#include "coordinator/store/sqlite_store.h"

namespace muster {
namespace {

constexpr Duration kShutdownGrace = std::chrono::seconds(2);

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

// CheckListenAddress has passed, and it is not unix:PATH.
HostPort SplitAddress(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  return {address.substr(0, colon),
          static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1)))};
}

bool IsUnix(const std::string& address) { return address.starts_with("unix:"); }

ControllerOptions OptionsOf(const ServerOptions& options) {
  ControllerOptions controller;
  controller.cluster = options.dir;
  controller.lease = options.lease;
  controller.scrub_interval = options.scrub_interval;
  controller.allow_faults = options.allow_faults;
  // As often as workers read the pages: a hang is told by 30 samples within 3 s.
  controller.progress_ms = 50;
  // Silence for a lease loses a node, so a few heartbeats must fit into one.
  const auto quarter = std::chrono::duration_cast<std::chrono::milliseconds>(options.lease / 4);
  controller.heartbeat_ms =
      std::min(controller.heartbeat_ms, std::max(1, static_cast<int>(quarter.count())));
  return controller;
}

}  // namespace

// Members are destroyed from the last to the first: the edges before what they use.
struct Server::Impl : EffectOutlet {
  Impl(ServerOptions options, std::string token, PidFile pid_file,
       std::unique_ptr<SqliteStore> store);

  Status Start();
  Status ListenGrpc();
  Status ListenHttp();
  void Close(const Status& reason);

  void SendToWorker(const WorkerSend& send) override { workers.Send(send); }
  void CloseWorker(const CloseSession& close) override { workers.Close(close); }
  void OnJobsChanged(const std::vector<JobId>& jobs) override { watches.OnJobsChanged(jobs); }
  void OnEvents(const std::vector<EventRecord>& events) override;
  void OnObservation(const Observation& observation) override { metrics.Observe(observation); }
  void OnStoreFailed(const Status& status) override;

  const ServerOptions options;
  const ClusterPaths paths;
  const std::string token;
  PidFile pid_file;
  EventLoop loop;
  std::unique_ptr<SqliteStore> store;
  Metrics metrics;
  OnEventRunner on_event;
  ControllerHost host;
  WorkerService workers;
  WatchHub watches;
  ClientService clients;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<GrpcServer> grpc;
  Endpoint endpoint;
  Status outcome;
  bool closing = false;
  std::thread shutdown;
};

Server::Impl::Impl(ServerOptions options_in, std::string token_in, PidFile pid_file_in,
                   std::unique_ptr<SqliteStore> store_in)
    : options(std::move(options_in)),
      paths{options.dir},
      token(std::move(token_in)),
      pid_file(std::move(pid_file_in)),
      store(std::move(store_in)),
      on_event(loop),
      host(loop, *store, *this, OptionsOf(options), SystemClock()),
      workers(loop, token, host),
      watches(loop, host),
      clients({loop, host, *store, watches, workers}, token, options.dir) {}

Status Server::Impl::Start() {
  MUSTER_RETURN_IF_ERROR(host.Restore());
  MUSTER_RETURN_IF_ERROR(ListenHttp());
  MUSTER_RETURN_IF_ERROR(ListenGrpc());
  endpoint.pid = ::getpid();
  if (!options.worker_listen.empty()) {
    const Endpoint workers_endpoint{grpc->addresses().back(), endpoint.http, endpoint.pid};
    MUSTER_RETURN_IF_ERROR(WriteEndpoint(paths.WorkersEndpoint(), workers_endpoint));
  }
  return WriteEndpoint(paths.Endpoint(), endpoint);
}

Status Server::Impl::ListenHttp() {
  const HostPort address = SplitAddress(options.http);
  Result<std::unique_ptr<HttpServer>> listening =
      HttpServer::Listen(loop, address.host, address.port);
  if (!listening.ok()) return listening.status();
  http = *std::move(listening);
  endpoint.http = address.host + ":" + std::to_string(http->port());
  http->Handle("/healthz", [](const std::string&) { return HttpResponse{.body = "ok\n"}; });
  http->Handle("/metrics", [this](const std::string&) {
    const EdgeFigures edges{workers.streams(), watches.watchers(), host.pending_requests(),
                            host.refused_requests() + clients.refused_calls(), on_event.totals()};
    return HttpResponse{.content_type = kMetricsContentType,
                        .body = metrics.Render(host.controller(), edges)};
  });
  http->Handle("/sd", [this](const std::string&) {
    return HttpResponse{.content_type = "application/json",
                        .body = Metrics::ServiceDiscovery(host.controller(), endpoint.http)};
  });
  return OkStatus();
}

Status Server::Impl::ListenGrpc() {
  std::vector<std::string> addresses = {options.listen};
  if (!options.worker_listen.empty()) addresses.push_back(options.worker_listen);
  MUSTER_ASSIGN_OR_RETURN(grpc, GrpcServer::Listen(addresses, clients, workers));
  endpoint.grpc = grpc->addresses().front();
  return OkStatus();
}

void Server::Impl::OnEvents(const std::vector<EventRecord>& events) {
  for (const EventRecord& event : events) {
    if (event.job.empty()) continue;
    const Result<JobView> job = host.controller().FindJob(event.job.value);
    if (!job.ok()) continue;
    // Most jobs want nothing, and their files need not be parsed for every event.
    const std::string& yaml = job->record->spec_yaml;
    if (yaml.find("on_event") == std::string::npos) continue;
    if (const Result<JobSpec> spec = ParseJobSpec(yaml); spec.ok()) on_event.Offer(*spec, event);
  }
}

void Server::Impl::OnStoreFailed(const Status& status) {
  outcome = status.WithContext("the state could not be written, so nothing more is decided");
  Log().critical("{}", outcome.message());
  // From inside a release; what it still does must find everything in place.
  loop.Post([this] { Close(Unavailable(outcome.message())); });
}

// Closes the gate, ends what is under way, lets gRPC drain while the loop still runs, stops.
void Server::Impl::Close(const Status& reason) {
  if (std::exchange(closing, true)) return;
  Log().info("shutting down: {}", reason.message());
  host.Close(reason);
  watches.CloseAll(reason);
  workers.CloseAll(reason);
  shutdown = std::thread([this] {
    grpc->Shutdown(kShutdownGrace);
    loop.Stop();
  });
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  // gRPC waits for its calls, and only a running loop finishes them.
  if (impl_->grpc && !impl_->closing) {
    impl_->Close(Unavailable("the coordinator is shutting down"));
    impl_->loop.Run();
  }
  if (impl_->shutdown.joinable()) impl_->shutdown.join();
}

Result<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  MUSTER_RETURN_IF_ERROR(CheckListenAddress(options.listen));
  MUSTER_RETURN_IF_ERROR(CheckListenAddress(options.http));
  if (!options.worker_listen.empty()) {
    MUSTER_RETURN_IF_ERROR(CheckPrivateNetwork(options.dir));
  }
  if (IsUnix(options.http)) return InvalidArgument("--http takes HOST:PORT, not " + options.http);
  const ClusterPaths paths{options.dir};
  MUSTER_RETURN_IF_ERROR(MakeDirectories(paths.CoordinatorDir(), 0700));
  MUSTER_ASSIGN_OR_RETURN(PidFile pid_file, PidFile::Acquire(paths.CoordinatorPid()));
  // What the one before left would send clients to a port that is not ours.
  ::unlink(paths.Endpoint().c_str());
  ::unlink(paths.WorkersEndpoint().c_str());
  MUSTER_ASSIGN_OR_RETURN(std::string token, LoadOrCreateToken(paths.Token()));
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<SqliteStore> store,
                          SqliteStore::Open({.path = paths.Database()}));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(token), std::move(pid_file),
                                     std::move(store));
  std::unique_ptr<Server> server(new Server(std::move(impl)));
  MUSTER_RETURN_IF_ERROR(server->impl_->Start());
  Log().info("muster-coordinator {} listens on {}, http://{}", kVersion, server->endpoint().grpc,
             server->endpoint().http);
  return server;
}

Status Server::Run() {
  if (impl_->options.handle_signals) {
    impl_->loop.OnTerminationSignal(
        [this](int) { impl_->Close(Unavailable("the coordinator is shutting down")); });
  }
  impl_->loop.Run();
  return impl_->outcome;
}

void Server::Stop() {
  impl_->loop.Post([this] { impl_->Close(Unavailable("the coordinator is shutting down")); });
}

const Endpoint& Server::endpoint() const { return impl_->endpoint; }

}  // namespace muster
