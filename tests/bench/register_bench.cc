// Many simulated nodes against one real coordinator in this process, over gRPC on loopback: how
// long until all are registered, and from a submission until every rank of one gang over all of
// them has reported that it met the others.
//
//   register_bench [--nodes 1000] [--ranks-per-node 4] [--runs 5]
//
// Prints one JSON object, with the threads that this process had: coordinator, workers and gRPC.

#include <stdlib.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/cluster_paths.h"
#include "common/base/json.h"
#include "common/rpc/channel.h"
#include "common/rpc/token.h"
#include "common/telemetry/log.h"
#include "coordinator/server.h"
#include "muster/v1/client_api.grpc.pb.h"
#include "tests/support/fake_worker.h"

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;
using testing::FakeWorker;

struct Options {
  int nodes = 1000;
  int ranks_per_node = 4;
  int runs = 5;
};

struct Times {
  double register_seconds = 0;
  double rendezvous_seconds = 0;
  int threads = 0;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "register_bench: %s\n", why.c_str());
  std::exit(EXIT_FAILURE);
}

// A coordinator in a directory of its own, serving on a thread.
class Coordinator {
 public:
  Coordinator() {
    char name[] = "/tmp/muster-register-XXXXXX";
    if (::mkdtemp(name) == nullptr) Fail("cannot make a directory in /tmp");
    dir_ = name;
    ServerOptions options;
    options.dir = dir_;
    options.handle_signals = false;
    auto server = Server::Start(options);
    if (!server.ok()) Fail(server.status().message());
    server_ = *std::move(server);
    thread_ = std::thread([this] { static_cast<void>(server_->Run()); });
    token_ = *LoadToken(ClusterPaths{dir_}.Token());
    client_ = v1::Client::NewStub(OpenChannel(address()));
  }
  ~Coordinator() {
    server_->Stop();
    thread_.join();
    server_.reset();
    std::filesystem::remove_all(dir_);
  }

  const std::string& address() const { return server_->endpoint().grpc; }
  const std::string& token() const { return token_; }

  int ReadyNodes() {
    v1::ListNodesResponse nodes;
    Call(&v1::Client::Stub::ListNodes, v1::ListNodesRequest{}, &nodes);
    return static_cast<int>(
        std::count_if(nodes.nodes().begin(), nodes.nodes().end(),
                      [](const v1::Node& n) { return n.state() == v1::NODE_STATE_READY; }));
  }

  std::string Submit(int nodes, int ranks_per_node) {
    v1::SubmitRequest request;
    request.set_spec_yaml("name: gang\nworkdir: " + dir_ +
                          "\nresources: {nodes: " + std::to_string(nodes) +
                          ", ranks_per_node: " + std::to_string(ranks_per_node) +
                          "}\ntrain:\n  model: {path: base}\n  data: {train: rows.jsonl}\n"
                          "  schedule: {max_steps: 100}\n");
    v1::SubmitResponse response;
    Call(&v1::Client::Stub::Submit, request, &response);
    return response.id();
  }

  // Reads the job's updates until its event `formed`: every rank has reported it, durably.
  void WaitUntilFormed(const std::string& job) {
    grpc::ClientContext context;
    AttachToken(context, token_);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(2));
    v1::WatchRequest request;
    request.set_job(job);
    auto reader = client_->Watch(&context, request);
    for (v1::WatchUpdate update; reader->Read(&update);) {
      for (const v1::Event& event : update.events()) {
        if (event.kind() != "formed") continue;
        context.TryCancel();
        static_cast<void>(reader->Finish());
        return;
      }
    }
    Fail("the gang did not form: " + reader->Finish().error_message());
  }

 private:
  template <typename Method, typename Request, typename Response>
  void Call(Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    AttachToken(context, token_);
    const grpc::Status status = ((*client_).*method)(&context, request, response);
    if (!status.ok()) Fail(status.error_message());
  }

  std::string dir_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  std::string token_;
  std::unique_ptr<v1::Client::Stub> client_;
};

int ThreadsOfThisProcess() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

Times RunOnce(const Options& options) {
  Coordinator coordinator;
  std::vector<std::unique_ptr<FakeWorker>> workers;
  for (int i = 0; i < options.nodes; ++i) {
    testing::FakeWorkerOptions worker;
    worker.node = "node-" + std::to_string(i);
    worker.instance = worker.node;
    worker.slots = options.ranks_per_node;
    workers.push_back(
        std::make_unique<FakeWorker>(coordinator.address(), coordinator.token(), worker));
  }
  Times times;
  const Clock::time_point start = Clock::now();
  for (const auto& worker : workers) worker->StartConnecting();
  for (const auto& worker : workers)
    if (const Status status = worker->WaitForWelcome(); !status.ok()) Fail(status.message());
  times.register_seconds = SecondsSince(start);
  if (coordinator.ReadyNodes() != options.nodes) Fail("not every node is ready");

  const Clock::time_point submitted = Clock::now();
  coordinator.WaitUntilFormed(coordinator.Submit(options.nodes, options.ranks_per_node));
  times.rendezvous_seconds = SecondsSince(submitted);
  times.threads = ThreadsOfThisProcess();
  for (const auto& worker : workers) worker->Disconnect();
  return times;
}

nlohmann::json Summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {{"runs", seconds.size()},
          {"median_s", seconds[seconds.size() / 2]},
          {"min_s", seconds.front()},
          {"max_s", seconds.back()}};
}

// Two descriptors for each connection, as both of its ends are here.
void AllowDescriptors(int nodes) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0 ||
      limit.rlim_cur < static_cast<rlim_t>(4 * nodes + 256))
    Fail("too few open files are allowed; see ulimit -Hn");
}

int Run(const Options& options) {
  AllowDescriptors(options.nodes);
  InitLogging("register_bench", "error");
  std::vector<double> registered;
  std::vector<double> met;
  int threads = 0;
  for (int run = 0; run < options.runs; ++run) {
    const Times times = RunOnce(options);
    registered.push_back(times.register_seconds);
    met.push_back(times.rendezvous_seconds);
    threads = std::max(threads, times.threads);
  }
  const nlohmann::json json = {{"benchmark", "register_and_rendezvous"},
                               {"nodes", options.nodes},
                               {"ranks", options.nodes * options.ranks_per_node},
                               {"register", Summary(registered)},
                               {"rendezvous", Summary(met)},
                               {"threads", threads},
                               {"cores", std::thread::hardware_concurrency()}};
  std::printf("%s\n", json.dump(1).c_str());
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  CLI::App app(
      "Registration of many simulated nodes, and the rendezvous of a gang over all of them");
  muster::Options options;
  app.add_option("--nodes", options.nodes)->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--ranks-per-node", options.ranks_per_node)
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--runs", options.runs)->check(CLI::Range(1, 1000))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return muster::Run(options);
}
