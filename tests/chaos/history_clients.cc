// Clients of several coordinators, for etcd_faults.py, which disturbs them: what they ask for and
// what they are answered becomes a history that linearizability.py checks.
//
//   history_clients --coordinator IP:PORT,... --tls DIR --workdir DIR --seed N
//                   [--clients N] [--rate N] [--new PERCENT] [--watch KEY=ID,...] >> HISTORY
//   history_clients ... --read < JOBS >> HISTORY
//
// Each client has a thread and a ClusterClient. --rate times a second one of them submits: a key
// again, with the same file or another, or, in --new of a hundred, a new job, which is held for
// good or, now and then, runs for a second. After each it asks for something else about a job of
// late, of any client. A line is written before each call and after it. Ends when standard input
// does.
//
// --read asks once about each job of JOBS, a line "KEY FILE ID" each; those without an id are
// submitted again by their key.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/base/interrupt.h"
#include "cli/client/cluster_client.h"
#include "cli/jobs/job_json.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "tests/bench/load_parts.h"

namespace muster {
namespace {

// Less than a leader holds its answers for: some calls stay open.
constexpr std::chrono::seconds kCallLimit{5};
constexpr std::size_t kOfLate = 64;  // jobs that are asked about
constexpr int kRunsOneIn = 8;        // of the new jobs
constexpr int kOtherFile = 10;       // percent of the submissions

struct Options {
  std::string coordinator, tls, workdir;
  std::vector<std::string> watch;
  std::uint64_t seed = 1;
  int clients = 8;
  int rate = 24;
  int percent_new = 10;
  bool read = false;
};

struct Job {
  std::string key, file, id;  // no id: no client has got an answer to its submission yet
};

// Files of one job differ, so that a key with another one conflicts.
std::string SpecOf(const Options& options, const std::string& file) {
  const std::string head = "name: history-" + file + "\nworkdir: " + options.workdir +
                           "\nresources: {nodes: 1, ranks_per_node: 1}\n";
  if (file != "runs") return head + "hold: true\ncommand: [/bin/true]\n";
  // Each attempt holds the lock of its job while it runs.
  return head +
         "command: [sh, -c, 'exec 9> locks/$MUSTER_JOB_ID; flock -n 9 || echo $MUSTER_JOB_ID >> "
         "doubled; exec sleep 1']\n";
}

// Jobs of late. Any thread.
class Jobs {
 public:
  void Add(Job job) {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (jobs_.size() > kOfLate) jobs_.pop_front();
  }
  void Learn(const std::string& key, const std::string& id) {
    std::lock_guard lock(mutex_);
    for (Job& job : jobs_)
      if (job.key == key) job.id = id;
  }
  bool Pick(std::mt19937_64& random, Job& job) {
    std::lock_guard lock(mutex_);
    if (jobs_.empty()) return false;
    job = jobs_[random() % jobs_.size()];
    return true;
  }

 private:
  std::mutex mutex_;
  std::deque<Job> jobs_;
};

double Now() { return ToSeconds(SystemClock().Now().time_since_epoch()); }

// A line in one write, so that those of other clients, and other processes, are not within it.
void Write(const nlohmann::json& line) {
  const std::string text = line.dump() + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    std::perror("history_clients: write");
    std::_Exit(EXIT_FAILURE);
  }
}

class Client {
 public:
  Client(const Options& options, int number, Jobs& jobs)
      : options_(options),
        // No other client of this history has it, also none of an earlier process.
        number_(static_cast<int>(options.seed) * 100 + number),
        jobs_(jobs),
        random_(options.seed * 100 + static_cast<std::uint64_t>(number)),
        client_("/nonexistent", interrupt_, RemoteCoordinator{options.coordinator, options.tls}) {
    client_.LimitCalls(kCallLimit);
  }

  void Run(Ending& ending) {
    const auto every = Duration(std::chrono::seconds(1)) * options_.clients / options_.rate;
    TimePoint next = SystemClock().Now() + every * (number_ % 100) / options_.clients;
    for (; !ending.BegunBy(next); next = std::max(next + every, SystemClock().Now())) {
      SubmitOne();
      AskOne();
    }
  }
  void Read(const Job& job) {
    if (job.id.empty())
      Submit(job);
    else
      Get(job);
  }

 private:
  void SubmitOne() {
    Job job;
    const int draw = static_cast<int>(random_() % 100);
    if (draw >= options_.percent_new && jobs_.Pick(random_, job)) {
      if (draw >= 100 - kOtherFile) job.file = job.file == "held" ? "other" : "held";
      return Submit(job);
    }
    job = {std::to_string(number_) + "-" + std::to_string(calls_),
           random_() % kRunsOneIn == 0 ? "runs" : "held", ""};
    jobs_.Add(job);
    Submit(job);
  }
  void AskOne() {
    const auto draw = random_() % 100;
    Job job;
    if (draw < 5 && !options_.watch.empty()) {
      const std::string& watched = options_.watch[random_() % options_.watch.size()];
      const std::size_t equals = watched.find('=');
      return Get({watched.substr(0, equals), "", watched.substr(equals + 1)});
    }
    if (!jobs_.Pick(random_, job) || job.id.empty()) return;
    if (draw < 45) return Get(job);
    if (draw < 65) return Ask<v1::SuspendRequest>("suspend", job, &ClusterClient::Suspend);
    if (draw < 85) return Ask<v1::ResumeRequest>("resume", job, &ClusterClient::Resume);
    Ask<v1::CancelRequest>("cancel", job, &ClusterClient::Cancel);
  }

  void Submit(const Job& job) {
    v1::SubmitRequest request;
    request.set_spec_yaml(SpecOf(options_, job.file));
    request.set_key(job.key);
    Begin({{"op", "submit"}, {"job", job.key}, {"file", job.file}});
    const auto answer = client_.Submit(request);
    if (!answer.ok()) return Failed(answer.status());
    End({{"answer", "ok"},
         {"id", answer->id()},
         {"existed", answer->existed()},
         {"state", StateWord(answer->state())}});
    jobs_.Learn(job.key, answer->id());
  }
  void Get(const Job& job) {
    Begin({{"op", "get"}, {"job", job.key}, {"id", job.id}});
    const auto answer = client_.GetJob(job.id);
    if (!answer.ok()) return Failed(answer.status());
    End({{"answer", "ok"},
         {"state", StateWord(answer->state())},
         {"generation", answer->generation()},
         {"step", answer->step()}});
  }
  template <typename Request, typename Method>
  void Ask(const char* op, const Job& job, Method method) {
    Request request;
    request.set_job(job.id);
    Begin({{"op", op}, {"job", job.key}, {"id", job.id}});
    const auto answer = (client_.*method)(request);
    if (!answer.ok()) return Failed(answer.status());
    End({{"answer", "ok"}, {"state", StateWord(answer->state())}});
  }

  void Begin(nlohmann::json line) {
    ++calls_;
    line["begin"] = Now();
    WriteLine(std::move(line));
  }
  void End(nlohmann::json line) {
    line["end"] = Now();
    WriteLine(std::move(line));
  }
  // Only these say that nothing was changed; after any other the call may still take effect.
  void Failed(const Status& status) {
    std::string answer;
    if (status.code() == StatusCode::kFailedPrecondition) answer = "refused";
    if (status.code() == StatusCode::kAlreadyExists) answer = "conflict";
    if (status.code() == StatusCode::kNotFound) answer = "absent";
    End({{"answer", answer}, {"error", status.message()}});
    if (answer.empty()) client_.Disconnect();
  }
  void WriteLine(nlohmann::json line) const {
    line["client"] = number_;
    line["number"] = calls_;
    Write(line);
  }

  const Options& options_;
  const int number_;
  Jobs& jobs_;
  std::mt19937_64 random_;
  Interrupt interrupt_;
  ClusterClient client_;
  int calls_ = 0;
};

std::vector<Job> ReadJobs() {
  std::vector<Job> jobs;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    Job job;
    words >> job.key >> job.file >> job.id;
    jobs.push_back(job);
  }
  return jobs;
}

int Run(const Options& options) {
  Jobs jobs;
  Ending ending;
  const std::vector<Job> wanted = options.read ? ReadJobs() : std::vector<Job>();
  std::atomic<std::size_t> next = 0;
  // All of them before the first thread: each blocks signals.
  std::vector<std::unique_ptr<Client>> clients;
  for (int n = 0; n < options.clients; ++n)
    clients.push_back(std::make_unique<Client>(options, n, jobs));
  std::vector<std::thread> threads;
  for (const auto& client : clients) {
    threads.emplace_back([&options, &ending, &wanted, &next, &client] {
      if (!options.read) return client->Run(ending);
      for (std::size_t at = next++; at < wanted.size(); at = next++) client->Read(wanted[at]);
    });
  }
  if (!options.read) {
    for (std::string line; std::getline(std::cin, line);) {
    }
    ending.Begin();
  }
  for (std::thread& thread : threads) thread.join();
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  CLI::App app("Clients of several coordinators, for etcd_faults.py");
  muster::Options options;
  app.add_option("--coordinator", options.coordinator)->required();
  app.add_option("--tls", options.tls)->required();
  app.add_option("--workdir", options.workdir)->required();
  app.add_option("--seed", options.seed)->check(CLI::Range(1, 10'000'000));
  app.add_option("--clients", options.clients)->check(CLI::Range(1, 100));
  app.add_option("--rate", options.rate)->check(CLI::Range(1, 10'000));
  app.add_option("--new", options.percent_new)->check(CLI::Range(1, 100));
  app.add_option("--watch", options.watch)->delimiter(',');
  app.add_flag("--read", options.read);
  CLI11_PARSE(app, argc, argv);
  return muster::Run(options);
}
