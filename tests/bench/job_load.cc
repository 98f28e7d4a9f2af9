// Many small jobs for a coordinator, for job_load.py, which measures the coordinator.
//
//   job_load --dir DIR --credentials DIR --coordinator IP:PORT --part PART [--jobs N] [--nodes N]
//            [--slots N] [--queues N] [--rate N] [--in-flight N]
//
// Submits over one TLS connection; its nodes are simulated (fake_worker.h), and ranks end as soon
// as they have started. A submission is durable when it is answered; a gang is placed durably when
// the first node of it gets Prepare; a job is done when its node may forget it. Parts:
//
//   submits   jobs that wait for nodes, as many at a time as --in-flight
//   paced     the same, --rate a second, whatever the answers do
//   ends      jobs of one rank, from submission to done
//   queues    jobs in q0, q1, ... of --queues queues, submitted before the nodes come; these stay
//   beside    half of the jobs wait in queue `closed`, which is full; the others come at --rate a
//   second
//
// Prints a line `ready`, reads a line, does its part, prints the figures as one line of JSON.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/cluster_paths.h"
#include "common/base/json.h"
#include "common/base/open_files.h"
#include "common/rpc/tls.h"
#include "muster/v1/client_api.grpc.pb.h"
#include "tests/bench/load_parts.h"
#include "tests/support/fake_worker.h"

namespace muster {
namespace {

constexpr std::chrono::minutes kPartLimit{10};

struct Options {
  std::string dir, credentials, coordinator, part;
  int jobs = 1000;
  int nodes = 50;
  int slots = 16;
  int queues = 1;
  int rate = 500;
  int in_flight = 64;
};

// When each job was submitted, durable, placed and done. Any thread.
class Ledger {
 public:
  struct Times {
    TimePoint sent, durable, placed;
  };

  void Durable(const std::string& job, TimePoint sent) {
    Note(job, [&](Times& times) {
      times.sent = sent;
      times.durable = std::chrono::steady_clock::now();
      newest_ = job;
      ++durable_;
    });
  }
  void Placed(const std::string& job) {
    Note(job, [&](Times& times) {
      times.placed = last_placed_ = std::chrono::steady_clock::now();
      ++placed_;
    });
  }
  void Done(const std::string& job) {
    Note(job, [&](Times&) { ++done_; });
  }
  void WaitFor(int Ledger::*count, int wanted) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPartLimit, [&] { return this->*count >= wanted; }))
      Fail("only " + std::to_string(this->*count) + " of " + std::to_string(wanted));
  }
  // Until nothing more has been placed for that long; how many have been.
  int WaitUntilPlacingEnds(std::chrono::seconds calm) {
    std::unique_lock lock(mutex_);
    for (int seen = -1; seen != placed_;) {
      seen = placed_;
      changed_.wait_for(lock, calm, [&] { return false; });
    }
    return placed_;
  }
  TimePoint last_placed() {
    std::lock_guard lock(mutex_);
    return last_placed_;
  }
  std::string newest() {
    std::lock_guard lock(mutex_);
    return newest_;
  }
  std::vector<double> SubmitSeconds() {
    return Seconds([](const Times& t) { return t.durable - t.sent; });
  }
  // How long jobs that were placed waited; negative where Prepare overtook the answer.
  std::vector<double> WaitSeconds() {
    return Seconds([](const Times& t) {
      return t.placed == TimePoint() ? Duration::min() : t.placed - t.durable;
    });
  }

  int durable_ = 0, placed_ = 0, done_ = 0;

 private:
  template <typename Change>
  void Note(const std::string& job, Change change) {
    std::lock_guard lock(mutex_);
    change(jobs_[job]);
    changed_.notify_all();
  }
  template <typename Span>
  std::vector<double> Seconds(Span span) {
    std::lock_guard lock(mutex_);
    std::vector<double> seconds;
    for (const auto& [job, times] : jobs_)
      if (const auto took = span(times); took != Duration::min())
        seconds.push_back(std::chrono::duration<double>(took).count());
    std::ranges::sort(seconds);
    return seconds;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::string, Times> jobs_;
  std::string newest_;
  TimePoint last_placed_;
};

nlohmann::json Spread(const std::vector<double>& seconds) {
  if (seconds.empty()) return nullptr;
  const std::size_t count = seconds.size();
  return {{"median_s", seconds[count / 2]},
          {"p99_s", seconds[count * 99 / 100]},
          {"max_s", seconds.back()}};
}

class Submitter {
 public:
  Submitter(const Options& options, Ledger& ledger) : options_(options), ledger_(ledger) {
    auto channel = OpenTlsChannel(options.coordinator,
                                  ClusterPaths{options.dir}.Security().AdminCredentials());
    if (!channel.ok()) Fail(channel.status().message());
    stub_ = v1::Client::NewStub(*channel);
  }

  // Waits while as many as allowed are in flight; 0: never.
  void Submit(const std::string& queue, int in_flight) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return in_flight == 0 || flying_ < in_flight; });
      ++flying_;
    }
    auto call = std::make_shared<Call>();
    call->sent = std::chrono::steady_clock::now();
    call->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    call->request.set_spec_yaml("name: load\nworkdir: " + options_.dir + "\nqueue: " + queue +
                                "\nresources: {nodes: 1, ranks_per_node: 1, time_limit: 1h}\n"
                                "command: [/bin/true]\n");
    stub_->async()->Submit(&call->context, &call->request, &call->response,
                           [this, call](const grpc::Status& status) {
                             if (!status.ok()) Fail("submit: " + status.error_message());
                             ledger_.Durable(call->response.id(), call->sent);
                             std::lock_guard lock(mutex_);
                             --flying_;
                             changed_.notify_all();
                           });
  }
  // So many a second, whatever the answers do.
  void SubmitPaced(const std::string& queue, int count, int rate) {
    Ending never;
    const TimePoint start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      never.BegunBy(start + i * Duration(std::chrono::seconds(1)) / rate);
      Submit(queue, 0);
    }
  }

 private:
  struct Call {
    grpc::ClientContext context;
    v1::SubmitRequest request;
    v1::SubmitResponse response;
    TimePoint sent;
  };

  const Options& options_;
  Ledger& ledger_;
  std::unique_ptr<v1::Client::Stub> stub_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int flying_ = 0;
};

class Nodes {
 public:
  Nodes(const Options& options, Ledger& ledger) {
    for (int n = 0; n < options.nodes; ++n) {
      testing::FakeWorkerOptions worker;
      worker.node = NodeText(n);
      worker.host_id = "boot-" + std::to_string(n);
      worker.instance = worker.node;
      worker.slots = options.slots;
      worker.address = "10.0.0." + std::to_string(1 + n);
      worker.credentials = options.credentials + "/" + worker.node;
      worker.train_on_launch = false;
      worker.ends_on_launch = [this, all_stay = options.part == "queues"](const std::string& job) {
        return !all_stay && job != Staying();
      };
      worker.observer = [&ledger](const v1::CoordinatorMessage& message) {
        if (message.has_prepare()) ledger.Placed(message.prepare().job_id());
        if (message.has_release()) ledger.Done(message.release().job_id());
      };
      workers_.push_back(
          std::make_unique<testing::FakeWorker>(options.coordinator, "", std::move(worker)));
    }
  }
  // This job's rank does not end.
  void Keep(const std::string& job) {
    std::lock_guard lock(mutex_);
    staying_ = job;
  }
  void Connect() {
    for (const auto& worker : workers_) worker->StartConnecting();
    for (const auto& worker : workers_)
      if (const Status status = worker->WaitForWelcome(); !status.ok()) Fail(status.message());
  }

 private:
  std::string Staying() {
    std::lock_guard lock(mutex_);
    return staying_;
  }

  std::mutex mutex_;
  std::string staying_;
  std::vector<std::unique_ptr<testing::FakeWorker>> workers_;
};

nlohmann::json Submits(const Options& options, Submitter& submitter, Ledger& ledger, Nodes&) {
  const TimePoint start = std::chrono::steady_clock::now();
  for (int i = 0; i < options.jobs; ++i) submitter.Submit("default", options.in_flight);
  ledger.WaitFor(&Ledger::durable_, options.jobs);
  return {{"per_s", options.jobs / SecondsSince(start)},
          {"submit", Spread(ledger.SubmitSeconds())}};
}

nlohmann::json Paced(const Options& options, Submitter& submitter, Ledger& ledger, Nodes&) {
  const TimePoint start = std::chrono::steady_clock::now();
  submitter.SubmitPaced("default", options.jobs, options.rate);
  ledger.WaitFor(&Ledger::durable_, options.jobs);
  return {{"per_s", options.jobs / SecondsSince(start)},
          {"submit", Spread(ledger.SubmitSeconds())}};
}

nlohmann::json Ends(const Options& options, Submitter& submitter, Ledger& ledger, Nodes& nodes) {
  nodes.Connect();
  const TimePoint start = std::chrono::steady_clock::now();
  for (int i = 0; i < options.jobs; ++i) submitter.Submit("default", options.in_flight);
  ledger.WaitFor(&Ledger::done_, options.jobs);
  return {{"per_s", options.jobs / SecondsSince(start)}, {"wait", Spread(ledger.WaitSeconds())}};
}

nlohmann::json Queues(const Options& options, Submitter& submitter, Ledger& ledger, Nodes& nodes) {
  TimePoint start = std::chrono::steady_clock::now();
  for (int i = 0; i < options.jobs; ++i)
    submitter.Submit("q" + std::to_string(i % options.queues), options.in_flight);
  ledger.WaitFor(&Ledger::durable_, options.jobs);
  const double submitted = SecondsSince(start);
  start = std::chrono::steady_clock::now();
  nodes.Connect();
  const int placed = ledger.WaitUntilPlacingEnds(std::chrono::seconds(10));
  const std::chrono::duration<double> admitted = ledger.last_placed() - start;
  return {{"submitted_s", submitted}, {"admitted", placed}, {"admitted_s", admitted.count()}};
}

nlohmann::json Beside(const Options& options, Submitter& submitter, Ledger& ledger, Nodes& nodes) {
  const int half = options.jobs / 2;
  submitter.Submit("closed", options.in_flight);
  ledger.WaitFor(&Ledger::durable_, 1);
  nodes.Keep(ledger.newest());
  nodes.Connect();
  ledger.WaitFor(&Ledger::placed_, 1);
  for (int i = 0; i < half; ++i) submitter.Submit("closed", options.in_flight);
  ledger.WaitFor(&Ledger::durable_, 1 + half);
  submitter.SubmitPaced("default", half, options.rate);
  ledger.WaitFor(&Ledger::placed_, 1 + half);
  return {{"wait", Spread(ledger.WaitSeconds())}};
}

int Run(const Options& options) {
  using Part = nlohmann::json (*)(const Options&, Submitter&, Ledger&, Nodes&);
  static const std::map<std::string, Part> parts = {{"submits", Submits},
                                                    {"paced", Paced},
                                                    {"ends", Ends},
                                                    {"queues", Queues},
                                                    {"beside", Beside}};
  const auto part = parts.find(options.part);
  if (part == parts.end()) Fail("there is no part " + options.part);
  RaiseOpenFilesLimit();
  IssueCertificates(options.dir, options.credentials, options.nodes);
  Ledger ledger;
  Submitter submitter(options, ledger);
  Nodes nodes(options, ledger);
  std::cout << "\"ready\"" << std::endl;
  std::string line;
  std::getline(std::cin, line);
  std::cout << part->second(options, submitter, ledger, nodes).dump() << std::endl;
  // Connections to end one by one would take long.
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  CLI::App app("Many small jobs for a coordinator, for job_load.py");
  muster::Options options;
  app.add_option("--dir", options.dir)->required();
  app.add_option("--credentials", options.credentials)->required();
  app.add_option("--coordinator", options.coordinator)->required();
  app.add_option("--part", options.part)->required();
  app.add_option("--jobs", options.jobs)->check(CLI::Range(1, 1'000'000));
  app.add_option("--nodes", options.nodes)->check(CLI::Range(1, 250));
  app.add_option("--slots", options.slots)->check(CLI::Range(1, 1024));
  app.add_option("--queues", options.queues)->check(CLI::Range(1, 10'000));
  app.add_option("--rate", options.rate)->check(CLI::Range(1, 100'000));
  app.add_option("--in-flight", options.in_flight)->check(CLI::Range(1, 10'000));
  CLI11_PARSE(app, argc, argv);
  return muster::Run(options);
}
