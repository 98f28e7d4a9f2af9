// Many nodes of a cluster in one process, for cluster_load.py, which measures the coordinator.
//
//   cluster_load --dir DIR --credentials DIR --coordinator IP:PORT
//                [--nodes 200] [--nodes-per-job 8] [--ranks-per-node 8]
//
// DIR is a cluster's directory after `muster init`. Each node has a certificate, a connection and a
// stream of its own, sends heartbeats as often as Welcome asks for, answers orders as a worker
// would, and reports the progress of its ranks once a second.
//
// Goes through its stages as it is asked to: connects and prints a line, reads a line, submits the
// jobs and waits until all of them run, prints a line, reads a line or the end of its input, prints
// how all of it is now. Lines that it prints are JSON. Every wait is bounded.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/cluster_paths.h"
#include "common/base/json.h"
#include "common/base/open_files.h"
#include "common/control_pipe/progress_page.h"
#include "common/rpc/tls.h"
#include "muster/v1/client_api.grpc.pb.h"
#include "tests/bench/load_parts.h"
#include "tests/support/fake_worker.h"

namespace muster {
namespace {

using testing::FakeWorker;

constexpr std::size_t kConnectAtOnce = 50;
constexpr std::chrono::seconds kProgressEvery{1};
constexpr std::chrono::milliseconds kAskEvery{100};
constexpr std::chrono::milliseconds kSubmitEvery{100};  // or starting jobs is what is measured
constexpr std::chrono::milliseconds kLookEvery{500};
constexpr std::chrono::seconds kCallLimit{30};
constexpr std::chrono::minutes kJobsStartWithin{5};

struct Options {
  std::string dir;
  std::string credentials;
  std::string coordinator;
  int nodes = 200;
  int nodes_per_job = 8;
  int ranks_per_node = 8;

  int jobs() const { return nodes / nodes_per_job; }
};

class Clients {
 public:
  explicit Clients(const Options& options) : options_(options) {
    auto channel = OpenTlsChannel(options.coordinator,
                                  ClusterPaths{options.dir}.Security().AdminCredentials());
    if (!channel.ok()) Fail(channel.status().message());
    stub_ = v1::Client::NewStub(*channel);
  }

  void Submit(int job) {
    v1::SubmitRequest request;
    request.set_spec_yaml("name: " + JobText(job) + "\nworkdir: " + options_.dir +
                          "\nresources: {nodes: " + std::to_string(options_.nodes_per_job) +
                          ", ranks_per_node: " + std::to_string(options_.ranks_per_node) +
                          "}\ntrain:\n  model: {path: base}\n  data: {train: rows.jsonl}\n"
                          "  schedule: {max_steps: 1000000}\n  output: {dir: " +
                          JobText(job) + "}\n");
    Call(&v1::Client::Stub::Submit, request);
  }
  void AskForAJob() {
    v1::GetJobRequest request;
    request.set_job(JobText(0));
    Call(&v1::Client::Stub::GetJob, request);
  }
  int ReadyNodes() {
    v1::ListNodesRequest request;
    int ready = 0;
    do {
      const v1::ListNodesResponse page = Call(&v1::Client::Stub::ListNodes, request);
      ready += static_cast<int>(
          std::ranges::count(page.nodes(), v1::NODE_STATE_READY, &v1::Node::state));
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());
    return ready;
  }
  // In their first generation.
  int RunningJobs() {
    const auto jobs = Call(&v1::Client::Stub::ListJobs, v1::ListJobsRequest()).jobs();
    return static_cast<int>(std::ranges::count_if(jobs, [](const v1::Job& job) {
      return job.state() == v1::JOB_STATE_RUNNING && job.generation() == 1;
    }));
  }

 private:
  static std::string JobText(int job) { return "job-" + std::to_string(job); }

  template <typename Request, typename Response>
  Response Call(grpc::Status (v1::Client::Stub::*method)(grpc::ClientContext*, const Request&,
                                                         Response*),
                const Request& request) {
    // While its disk is behind, a coordinator refuses requests.
    Ending never;
    for (const TimePoint limit = std::chrono::steady_clock::now() + kCallLimit;;) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
      Response response;
      const grpc::Status status = ((*stub_).*method)(&context, request, &response);
      if (status.ok()) return response;
      const bool busy = status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ||
                        status.error_code() == grpc::StatusCode::UNAVAILABLE;
      if (!busy || std::chrono::steady_clock::now() > limit) Fail(status.error_message());
      never.BegunBy(std::chrono::steady_clock::now() + kAskEvery);
    }
  }

  const Options& options_;
  std::unique_ptr<v1::Client::Stub> stub_;
};

// What a rank's page says after so many seconds at a step each.
v1::RankProgress SampleAt(std::int64_t seconds) {
  v1::RankProgress sample;
  sample.set_step(seconds);
  sample.set_steps_done(seconds);
  sample.set_phase(v1::TRAIN_PHASE_FORWARD);
  sample.set_process_state("S");
  sample.set_loss(2.5);
  sample.set_grad_norm(0.7);
  sample.set_learning_rate(3e-4);
  sample.set_step_seconds(1);
  sample.set_slowest_step_seconds(1);
  sample.set_busy_seconds(0.8 * static_cast<double>(seconds));
  sample.set_wait_seconds(0.2 * static_cast<double>(seconds));
  sample.set_cpu_seconds(static_cast<double>(seconds));
  sample.set_tokens(4096 * seconds);
  sample.set_tokens_per_second(4096);
  sample.set_max_steps(1'000'000);
  sample.set_rss_bytes(std::uint64_t{4} << 30);
  sample.set_stores(static_cast<std::uint64_t>(100 * seconds));
  sample.set_snapshot_step(-1);
  sample.set_quiet_samples(1);
  for (int phase = 0; phase < kTrainPhaseCount; ++phase)
    sample.add_phase_seconds(static_cast<double>(seconds) / kTrainPhaseCount);
  for (const char* group : {"world", "shards"}) {
    v1::CollectiveCounts& counts = *sample.add_collectives();
    counts.set_group(group);
    counts.set_enqueued(static_cast<std::uint64_t>(40 * seconds));
    counts.set_started(counts.enqueued());
    counts.set_completed(counts.enqueued());
    counts.set_bytes(1 << 20);
  }
  return sample;
}

// All nodes. Their ranks' progress is reported from a thread of its own, each node's at another
// time of the second.
class Nodes {
 public:
  explicit Nodes(const Options& options) {
    for (int n = 0; n < options.nodes; ++n) {
      testing::FakeWorkerOptions worker;
      worker.node = NodeText(n);
      worker.host_id = "boot-" + std::to_string(n);
      worker.instance = worker.node;
      worker.slots = options.ranks_per_node;
      worker.address = "10.0." + std::to_string(n / 250) + "." + std::to_string(1 + n % 250);
      worker.credentials = options.credentials + "/" + worker.node;
      workers_.push_back(std::make_unique<FakeWorker>(options.coordinator, "", worker));
    }
  }
  ~Nodes() {
    ending_.Begin();
    if (reporter_.joinable()) reporter_.join();
  }
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  void Connect() {
    for (std::size_t first = 0; first < workers_.size(); first += kConnectAtOnce) {
      const std::size_t last = std::min(first + kConnectAtOnce, workers_.size());
      for (std::size_t n = first; n < last; ++n) workers_[n]->StartConnecting();
      for (std::size_t n = first; n < last; ++n)
        if (const Status status = workers_[n]->WaitForWelcome(); !status.ok())
          Fail(NodeText(static_cast<int>(n)) + ": " + status.message());
    }
    reporter_ = std::thread([this] { Report(); });
  }

  // How late the latest report of the last seconds was.
  double TakeLateness() { return lateness_.exchange(0); }

 private:
  void Report() {
    const TimePoint start = std::chrono::steady_clock::now();
    for (std::int64_t second = 2;; ++second) {
      const v1::RankProgress sample = SampleAt(second);
      for (std::size_t n = 0; n < workers_.size(); ++n) {
        const auto due = start + kProgressEvery * (second - 2) +
                         kProgressEvery * n / static_cast<std::int64_t>(workers_.size());
        if (ending_.BegunBy(due)) return;
        lateness_ = std::max(lateness_.load(), SecondsSince(due));
        workers_[n]->ReportProgressOfAll(sample);
      }
    }
  }

  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::thread reporter_;
  Ending ending_;
  std::atomic<double> lateness_ = 0;
};

// Asks the coordinator's loop something ten times a second, as a client of its own.
class Asker {
 public:
  explicit Asker(const Options& options)
      : thread_([this, &options] {
          for (Clients clients(options);
               !ending_.BegunBy(std::chrono::steady_clock::now() + kAskEvery);) {
            const TimePoint asked = std::chrono::steady_clock::now();
            clients.AskForAJob();
            seconds_.push_back(SecondsSince(asked));
          }
        }) {}
  nlohmann::json End() {
    ending_.Begin();
    thread_.join();
    std::ranges::sort(seconds_);
    const std::size_t count = seconds_.size();
    return {{"asked", count},
            {"median_s", seconds_[count / 2]},
            {"p99_s", seconds_[count * 99 / 100]},
            {"max_s", seconds_.back()}};
  }

 private:
  Ending ending_;
  std::vector<double> seconds_;
  std::thread thread_;
};

void Print(const nlohmann::json& line) { std::cout << line.dump() << std::endl; }
void WaitForLine() {
  std::string line;
  std::getline(std::cin, line);
}

void StartJobs(const Options& options, Clients& clients) {
  Ending never;
  for (int job = 0; job < options.jobs(); ++job) {
    clients.Submit(job);
    never.BegunBy(std::chrono::steady_clock::now() + kSubmitEvery);
  }
  const TimePoint limit = std::chrono::steady_clock::now() + kJobsStartWithin;
  for (int running = 0; running < options.jobs(); running = clients.RunningJobs())
    if (never.BegunBy(std::chrono::steady_clock::now() + kLookEvery) ||
        std::chrono::steady_clock::now() > limit)
      Fail("only " + std::to_string(running) + " jobs run");
}

int Run(const Options& options) {
  RaiseOpenFilesLimit();
  IssueCertificates(options.dir, options.credentials, options.nodes);
  Nodes nodes(options);
  Clients clients(options);
  TimePoint start = std::chrono::steady_clock::now();
  nodes.Connect();
  Print({{"registered_s", SecondsSince(start)}});
  WaitForLine();
  start = std::chrono::steady_clock::now();
  StartJobs(options, clients);
  Print({{"started_s", SecondsSince(start)}});
  static_cast<void>(nodes.TakeLateness());
  Asker asker(options);
  WaitForLine();
  Print({{"answers", asker.End()},
         {"report_latest_s", nodes.TakeLateness()},
         {"nodes_ready", clients.ReadyNodes()},
         {"jobs_undisturbed", clients.RunningJobs()}});
  // Nothing is left to say; thousands of calls to end one by one would take long.
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  CLI::App app("Many nodes of a cluster, for cluster_load.py");
  muster::Options options;
  app.add_option("--dir", options.dir)->required();
  app.add_option("--credentials", options.credentials)->required();
  app.add_option("--coordinator", options.coordinator)->required();
  app.add_option("--nodes", options.nodes)->check(CLI::Range(1, 16384))->capture_default_str();
  app.add_option("--nodes-per-job", options.nodes_per_job)
      ->check(CLI::Range(1, 16384))
      ->capture_default_str();
  app.add_option("--ranks-per-node", options.ranks_per_node)
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return muster::Run(options);
}
