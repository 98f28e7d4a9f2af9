// A coordinator's status page in front of a controller that is fed as workers would feed it, for
// tests/bench/page_bench.py.
//
//   page_cluster [JOBS [NODES]]      default 1000 1000
//
// Half of the jobs run on two nodes each, a quarter has ended, the rest waits. Ranks report their
// pages four times a second and finish a step each second, nodes send heartbeats. It prints
// {"http": ADDRESS, "key": KEY, "job": ID}, then {"step": N, "unix_ms": T} whenever that job has
// been told to have finished a step, and runs until its standard input ends.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/json.h"
#include "common/base/version.h"
#include "common/job_spec/parse.h"
#include "common/runtime/event_loop.h"
#include "common/telemetry/http_server.h"
#include "coordinator/control/controller.h"
#include "coordinator/page/page_routes.h"

namespace muster {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(250);
constexpr int kTicksOfStep = 4;
constexpr int kSlots = 1;
constexpr char kKey[] = "5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e";

std::string JobFile(int number) {
  return "name: finetune-" + std::to_string(number) +
         "\nworkdir: /jobs\nresources: {nodes: 2, ranks_per_node: 1}\ntrain:\n  model: {path: "
         "model}\n  data: {train: rows.jsonl}\n  schedule: {max_steps: 100000}\n  output: {dir: "
         "out-" +
         std::to_string(number) + "}\n";
}

JobId IdOf(int number) {
  char id[11];
  std::snprintf(id, sizeof id, "%010x", number);
  return {id};
}

// Workers, as far as the controller can tell.
class FedController {
 public:
  FedController() : controller_(Options()) { Take(controller_.Restore({}, Clock())); }

  Controller& controller() { return controller_; }
  static Now Clock() { return {SystemClock().Now(), SystemClock().UnixMillis()}; }

  std::vector<JobId> Handle(const Event& event) {
    changed_.clear();
    Take(controller_.Handle(event, Clock()));
    while (!answers_.empty()) {
      const Event answer = std::move(answers_.front());
      answers_.pop_front();
      Take(controller_.Handle(answer, Clock()));
    }
    return changed_;
  }

  void Join(int number) {
    Hello hello;
    hello.protocol_version = kProtocolVersion;
    hello.min_protocol_version = kProtocolVersion;
    hello.version = "bench";
    hello.node = {"node-" + std::to_string(number)};
    hello.address = "10.0." + std::to_string(number / 250) + "." + std::to_string(number % 250 + 1);
    hello.host_id = hello.node.value;
    hello.slots = kSlots;
    hello.instance = "first";
    const SessionId session = ++last_session_;
    nodes_[hello.node] = session;
    Handle(WorkerHello{session, hello});
  }

  void Submit(int number) {
    const std::string yaml = JobFile(number);
    Handle(SubmitRequested{.request = ++request_,
                           .spec_yaml = yaml,
                           .new_id = IdOf(number),
                           .spec = ParseJobSpec(yaml)});
  }
  void Cancel(int number) {
    Handle(CancelRequested{.request = ++request_, .job = IdOf(number).value, .reason = ""});
  }

  std::vector<JobId> Heartbeats() {
    std::vector<JobId> changed;
    for (const auto& [node, session] : nodes_) {
      for (const JobId& job : Handle(WorkerMessageReceived{session, Heartbeat{}}))
        changed.push_back(job);
    }
    Handle(Tick{});
    return changed;
  }

  // Both ranks of a job that runs have finished `step`.
  std::vector<JobId> Step(const JobView& job, Step step) {
    std::vector<JobId> changed;
    const JobId id = job.record->id;
    const Generation generation = job.record->generation;
    const std::vector<RankRecord> ranks = job.ranks();
    for (const RankRecord& rank : ranks) {
      RankProgress progress;
      progress.rank = rank.rank;
      progress.step = step;
      progress.phase = TrainPhase::kForward;
      progress.loss = 1.5 + 2 / std::sqrt(static_cast<double>(step));
      progress.step_seconds = 1;
      progress.tokens_per_second = 12345;
      progress.max_steps = 100000;
      progress.rss_bytes = 3'000'000'000;
      const Event said = WorkerMessageReceived{
          nodes_.at(rank.node), Progress{.job = id, .generation = generation, .ranks = {progress}}};
      for (const JobId& other : Handle(said)) changed.push_back(other);
    }
    return changed;
  }

 private:
  static ControllerOptions Options() {
    ControllerOptions options;
    options.lease = std::chrono::minutes(10);
    return options;
  }

  void Take(const Effects& effects) {
    for (const WorkerSend& send : effects.sends) {
      if (const auto* prepare = std::get_if<Prepare>(&send.message)) Answer(send, *prepare);
      if (const auto* launch = std::get_if<Launch>(&send.message)) Answer(send, *launch);
      if (const auto* abort = std::get_if<Abort>(&send.message)) Answer(send, *abort);
    }
    changed_.insert(changed_.end(), effects.changed.begin(), effects.changed.end());
  }

  void Answer(const WorkerSend& send, const Prepare& prepare) {
    for (const RankPlacement& rank : prepare.ranks) ranks_[{prepare.job, send.node}] = rank.rank;
    answers_.push_back(WorkerMessageReceived{
        send.session, Prepared{.job = prepare.job,
                               .generation = prepare.generation,
                               .retryable = true,
                               .master_port = prepare.hosts_master ? 4001 : 0}});
  }

  void Answer(const WorkerSend& send, const Launch& launch) {
    const int rank = ranks_.at({launch.job, send.node});
    const auto say = [&](WorkerMessage message) {
      answers_.push_back(WorkerMessageReceived{send.session, std::move(message)});
    };
    say(RankStarted{
        .job = launch.job, .generation = launch.generation, .rank = rank, .pid = 1000 + rank});
    say(TrainerReport{
        .job = launch.job, .generation = launch.generation, .rank = rank, .body = Formed{}});
    say(TrainerReport{.job = launch.job,
                      .generation = launch.generation,
                      .rank = rank,
                      .body = Resumed{.step = 0, .from = "start"}});
    say(TrainerReport{
        .job = launch.job, .generation = launch.generation, .rank = rank, .body = FirstStep{1}});
  }

  void Answer(const WorkerSend& send, const Abort& abort) {
    answers_.push_back(WorkerMessageReceived{
        send.session, Quiesced{.job = abort.job, .generation = abort.generation}});
  }

  Controller controller_;
  std::deque<Event> answers_;
  std::vector<JobId> changed_;
  std::map<NodeName, SessionId> nodes_;
  std::map<std::pair<JobId, NodeName>, int> ranks_;
  SessionId last_session_ = 0;
  RequestId request_ = 0;
};

class PageCluster {
 public:
  PageCluster(int jobs, int nodes) : timer_(loop_) {
    for (int i = 1; i <= nodes; ++i) fed_.Join(i);
    // What has ended before the others come, so that their nodes are free again.
    for (int i = 1; i <= jobs / 4; ++i) {
      fed_.Submit(100'000 + i);
      fed_.Cancel(100'000 + i);
    }
    for (int i = 1; i <= jobs - jobs / 4; ++i) fed_.Submit(i);
    feeds_ = std::make_unique<PageFeeds>(
        loop_, PageSources{.controller = fed_.controller(),
                           .cluster = "page_cluster",
                           .after_durable = [](auto done) { done(OkStatus()); },
                           .now = FedController::Clock});
  }

  int Run() {
    auto server = HttpServer::Listen(loop_, "127.0.0.1", 0);
    if (!server.ok()) {
      std::fprintf(stderr, "page_cluster: %s\n", server.status().message().c_str());
      return 1;
    }
    AddPageRoutes(**server,
                  {.key = kKey,
                   .controller = fed_.controller(),
                   .feeds = *feeds_,
                   .read_log = [](const LogLocation&, int, std::int64_t, const auto& done) {
                     done(NotFound("a job of page_cluster has no log"));
                   }});
    Print({{"http", "127.0.0.1:" + std::to_string((*server)->port())},
           {"key", kKey},
           {"job", IdOf(1).value},
           {"running", Running().size()}});
    std::thread input([this] {
      char buffer[64];
      while (::read(STDIN_FILENO, buffer, sizeof buffer) > 0) {
      }
      loop_.Stop();
    });
    Tick();
    loop_.Run();
    input.join();
    return 0;
  }

 private:
  static void Print(const nlohmann::json& line) {
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }

  std::vector<JobView> Running() {
    std::vector<JobView> running;
    for (const JobView& view : fed_.controller().Jobs())
      if (view.record->state == JobState::kRunning) running.push_back(view);
    return running;
  }

  // A quarter of the running jobs finishes a step in each tick.
  void Tick() {
    timer_.Start(kTick, [this] { Tick(); });
    ++ticks_;
    if (ticks_ % 2 == 0) feeds_->OnJobsChanged(fed_.Heartbeats());
    const std::vector<JobView> running = Running();
    for (std::size_t i = 0; i < running.size(); ++i) {
      if (static_cast<int>(i) % kTicksOfStep != ticks_ % kTicksOfStep) continue;
      const Step step = 1 + ticks_ / kTicksOfStep;
      const bool watched = running[i].record->id == IdOf(1);
      const std::int64_t now = SystemClock().UnixMillis();
      feeds_->OnJobsChanged(fed_.Step(running[i], step));
      if (watched) Print({{"step", step}, {"unix_ms", now}});
    }
  }

  EventLoop loop_;
  Timer timer_;
  FedController fed_;
  std::unique_ptr<PageFeeds> feeds_;
  int ticks_ = kTicksOfStep;
};

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  const int jobs = argc > 1 ? std::atoi(argv[1]) : 1000;
  const int nodes = argc > 2 ? std::atoi(argv[2]) : 1000;
  return muster::PageCluster(jobs, nodes).Run();
}
