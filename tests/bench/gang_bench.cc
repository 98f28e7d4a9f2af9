// One gang over every node of a large cluster: how much processor time the controller needs from
// the submission until every rank has finished a first step, alone and with every message taken
// through the wire codec and protobuf, both ways. No sockets, no store.
//
//   gang_bench [--nodes 6000] [--ranks-per-node 8]
//
// Prints one JSON object. `rendezvous` is the exchange of ranks and the master's address: from the
// first Prepared until the last node has read its Launch. Fails if a node gets a wrong rank,
// address or port, or if the gang does not run.

#include <time.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/json.h"
#include "common/base/version.h"
#include "common/job_spec/parse.h"
#include "common/wire/codec.h"
#include "coordinator/control/controller.h"
#include "coordinator/control/testing/gang_cluster.h"

namespace muster {
namespace {

constexpr int kMasterPort = 29500;

struct Options {
  int nodes = 6000;
  int ranks_per_node = 8;
};

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "gang_bench: %s\n", why.c_str());
  std::exit(EXIT_FAILURE);
}

double ThreadCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Cpu {
  double controller = 0;
  double wire = 0;
};

// What a peer reads of it.
WorkerMessage OverTheWire(const WorkerMessage& message) {
  v1::WorkerMessage read;
  if (!read.ParseFromString(ToProto(message).SerializeAsString())) Fail("a message is garbled");
  Result<WorkerMessage> value = FromProto(std::move(read));
  if (!value.ok()) Fail(value.status().message());
  return *std::move(value);
}

CoordinatorMessage OverTheWire(const CoordinatorMessage& message) {
  v1::CoordinatorMessage read;
  if (!read.ParseFromString(ToProto(message).SerializeAsString())) Fail("a message is garbled");
  Result<CoordinatorMessage> value = FromProto(read);
  if (!value.ok()) Fail(value.status().message());
  return *std::move(value);
}

// Every node of the cluster, and the controller that they talk to.
class Cluster {
 public:
  explicit Cluster(const Options& options) : options_(options), controller_(ControllerOptions{}) {
    controller_.Restore({}, Clock());
    nodes_.resize(static_cast<std::size_t>(options.nodes));
    registered_ = Measure([this] {
      for (int n = 0; n < options_.nodes; ++n)
        Handle(WorkerHello{SessionOf(n), HelloOfNode(n, options_.ranks_per_node)});
    });
    longest_event_ = 0;
  }

  Cpu Submit() {
    return Measure([this] {
      const std::string yaml = GangYaml(options_.nodes, options_.ranks_per_node);
      Handle(SubmitRequested{.request = 1,
                             .spec_yaml = yaml,
                             .new_id = JobId{"0123456789"},
                             .spec = ParseJobSpec(yaml)});
    });
  }

  // Says it for every node.
  template <typename MakeMessage>
  Cpu FromEachNode(MakeMessage make) {
    return Measure([&] {
      for (int n = 0; n < options_.nodes; ++n) Deliver(n, make(n));
    });
  }
  // Says it for every rank.
  template <typename MakeMessage>
  Cpu FromEachRank(MakeMessage make) {
    return Measure([&] {
      for (int n = 0; n < options_.nodes; ++n) {
        for (const RankPlacement& rank : nodes_[Index(n)].prepare.ranks)
          Deliver(n, make(rank.rank));
      }
    });
  }

  const Prepare& prepare(int n) const { return nodes_[Index(n)].prepare; }

  void ExpectEachRankPrepared() const {
    std::vector<int> seen(Index(WorldSize()));
    for (const Node& node : nodes_) {
      if (node.prepare.ranks.size() != Index(options_.ranks_per_node)) Fail("ranks are missing");
      for (const RankPlacement& rank : node.prepare.ranks) ++seen.at(Index(rank.rank));
    }
    for (const int times : seen)
      if (times != 1) Fail("a rank is on no node, or on two");
  }

  void ExpectEachNodeLaunched() const {
    for (const Node& node : nodes_) {
      const Launch& launch = node.launch;
      if (launch.world_size != WorldSize() || launch.node_count != options_.nodes ||
          launch.local_world_size != options_.ranks_per_node)
        Fail("a node has no Launch, or one of another size");
      for (const RankPlacement& rank : node.prepare.ranks)
        if (rank.rank != launch.node_rank * options_.ranks_per_node + rank.local_rank)
          Fail("a node's rank is not that of its ranks");
      if (launch.master_port != kMasterPort ||
          launch.master_address != nodes_.front().launch.master_address)
        Fail("a node has another master's address");
      if (launch.buddy_ring.size() != Index(options_.nodes)) Fail("the ring lacks nodes");
    }
  }

  void ExpectState(JobState state) const {
    if (controller_.Jobs().front().record->state != state) Fail("the gang is in another state");
  }

  const Cpu& registered() const { return registered_; }  // of all nodes, before the gang
  double longest_event() const { return longest_event_; }

 private:
  struct Node {
    Prepare prepare;
    Launch launch;
  };

  static std::size_t Index(int n) { return static_cast<std::size_t>(n); }
  static SessionId SessionOf(int n) { return static_cast<SessionId>(n) + 1; }
  int WorldSize() const { return options_.nodes * options_.ranks_per_node; }

  Now Clock() const { return {now_, now_.time_since_epoch() / std::chrono::milliseconds(1)}; }

  template <typename Work>
  Cpu Measure(Work work) {
    cpu_ = {};
    work();
    return cpu_;
  }

  void Deliver(int n, const WorkerMessage& message) {
    const double before = ThreadCpuSeconds();
    WorkerMessage read = OverTheWire(message);
    cpu_.wire += ThreadCpuSeconds() - before;
    Handle(WorkerMessageReceived{SessionOf(n), std::move(read)});
  }

  void Handle(const Event& event) {
    const double before = ThreadCpuSeconds();
    const Effects effects = controller_.Handle(event, Clock());
    const double used = ThreadCpuSeconds() - before;
    cpu_.controller += used;
    longest_event_ = std::max(longest_event_, used);
    for (const WorkerSend& send : effects.sends) Receive(send);
  }

  void Receive(const WorkerSend& send) {
    const double before = ThreadCpuSeconds();
    CoordinatorMessage read = OverTheWire(send.message);
    cpu_.wire += ThreadCpuSeconds() - before;
    Node& node = nodes_.at(static_cast<std::size_t>(send.session) - 1);
    if (auto* prepare = std::get_if<Prepare>(&read)) node.prepare = std::move(*prepare);
    if (auto* launch = std::get_if<Launch>(&read)) node.launch = std::move(*launch);
  }

  const Options options_;
  Controller controller_;
  const TimePoint now_{std::chrono::hours(1)};
  std::vector<Node> nodes_;
  Cpu cpu_;
  Cpu registered_;
  double longest_event_ = 0;
};

int Run(const Options& options) {
  Cluster cluster(options);
  std::vector<std::pair<std::string, Cpu>> stages;
  stages.emplace_back("submit", cluster.Submit());
  cluster.ExpectEachRankPrepared();
  const JobId job = cluster.prepare(0).job;
  stages.emplace_back("prepared", cluster.FromEachNode([&](int n) {
    const int port = cluster.prepare(n).hosts_master ? kMasterPort : 0;
    return Prepared{.job = job, .generation = 1, .master_port = port};
  }));
  cluster.ExpectEachNodeLaunched();
  stages.emplace_back("started", cluster.FromEachRank([&](int rank) {
    return RankStarted{.job = job, .generation = 1, .rank = rank, .pid = 1000 + rank};
  }));
  const auto report = [&](auto body) {
    return [job, body](int rank) {
      return TrainerReport{.job = job, .generation = 1, .rank = rank, .body = body};
    };
  };
  stages.emplace_back("formed", cluster.FromEachRank(report(Formed{})));
  stages.emplace_back("resumed", cluster.FromEachRank(report(Resumed{.step = 0, .from = "start"})));
  stages.emplace_back("first_step", cluster.FromEachRank(report(FirstStep{.step = 1})));
  cluster.ExpectState(JobState::kRunning);

  nlohmann::json by_stage;
  std::map<std::string_view, Cpu> sums;
  for (const auto& [name, cpu] : stages) {
    by_stage[name] = {{"controller_s", cpu.controller}, {"wire_s", cpu.wire}};
    for (const char* sum : {"all", "formed", "rendezvous"}) {
      if (sum == std::string_view("rendezvous") && name != "prepared") continue;
      if (sum == std::string_view("formed") && (name == "resumed" || name == "first_step"))
        continue;
      sums[sum].controller += cpu.controller;
      sums[sum].wire += cpu.wire;
    }
  }
  nlohmann::json json = {{"benchmark", "gang"},
                         {"nodes", options.nodes},
                         {"ranks", options.nodes * options.ranks_per_node},
                         {"register_controller_s", cluster.registered().controller},
                         {"cpu_by_stage", by_stage},
                         {"longest_event_s", cluster.longest_event()}};
  for (const auto& [name, cpu] : sums)
    json["cpu_" + std::string(name)] = {{"controller_s", cpu.controller}, {"wire_s", cpu.wire}};
  std::printf("%s\n", json.dump(1).c_str());
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  CLI::App app("Processor time of one gang over every node of a large cluster");
  muster::Options options;
  app.add_option("--nodes", options.nodes)->check(CLI::Range(1, 16384))->capture_default_str();
  app.add_option("--ranks-per-node", options.ranks_per_node)
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return muster::Run(options);
}
