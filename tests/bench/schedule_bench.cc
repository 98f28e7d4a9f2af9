// What a pass of the scheduler costs: milliseconds of processor time of Plan(), and microseconds
// per waiting job, as JSON. A pass is one thread's, so that its wall time on an idle machine is the
// same.
//
//   schedule_bench [--plans 200] [--only decision,wide,backlog,many_queues,reclaim]
//
//   decision     one gang of a node arrives in a cluster that is half full, 100 to 10,000 nodes
//   wide         one gang of 64 nodes among 6,000
//   backlog      10,000 jobs wait for a full cluster of 10,000 nodes, without and with time limits
//   many_queues  60,000 gangs in 2,000 queues, half of them over their ceilings, a third borrowing
//   reclaim      20 gangs of 51 nodes make 1,020 gangs give way, also where a ceiling binds them
//   all
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "coordinator/scheduler/scheduler.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kGpus = 8;
constexpr auto kHour = std::chrono::hours(1);

struct Cluster {
  NodeInventory inventory;
  SchedulerSnapshot snapshot;
  std::mt19937_64 random{1};

  Cluster(int nodes, int slots, int gpus) {
    snapshot.now = TimePoint(kHour);
    for (int i = 0; i < gpus; ++i)
      inventory.devices.push_back(
          {.id = "GPU-" + std::to_string(i), .memory_bytes = 80'000'000'000});
    const DeviceMask all = gpus == 0 ? 0 : ~DeviceMask{0} >> (64 - gpus);
    for (int i = 0; i < nodes; ++i) {
      const NodeParts parts{.slots = slots, .devices = all};
      snapshot.nodes.push_back({.name = {"n" + std::to_string(i)},
                                .inventory = &inventory,
                                .all = parts,
                                .free = parts,
                                .domain = "rack-" + std::to_string(i / 32)});
    }
  }

  // A gang has all of the node, for up to ten hours more, if it has a limit.
  void Fill(NodeCapacity& node, bool limited) {
    RunningGang gang{.queue = 0, .amounts = {.gpus = kGpus, .slots = kGpus}};
    if (limited) {
      gang.ends = snapshot.now + std::chrono::minutes(1 + random() % 600);
      gang.parts.push_back({node.name, node.free});
    }
    node.free = {};
    snapshot.running.push_back(gang);
  }

  GangRequest& Ask(int nodes, int ranks, int gpus_per_rank) {
    const auto order = snapshot.requests.size() + 1;
    GangRequest request{.job = {"job-" + std::to_string(order)}, .nodes = nodes};
    request.demand.ranks = ranks;
    request.demand.devices.per_rank = gpus_per_rank;
    request.submit_order = order;
    snapshot.requests.push_back(request);
    return snapshot.requests.back();
  }
};

double Quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

double ProcessorMs() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

// What `plans` passes took.
Json Timed(const SchedulerSnapshot& snapshot, int plans) {
  std::vector<double> ms;
  SchedulePlan plan;
  for (int i = 0; i < plans; ++i) {
    const double began = ProcessorMs();
    plan = Plan(snapshot);
    ms.push_back(ProcessorMs() - began);
  }
  const auto promised = std::ranges::count_if(
      plan.waiting, [](const WaitingJob& job) { return job.promise.has_value(); });
  return {
      {"nodes", snapshot.nodes.size()},
      {"requests", snapshot.requests.size()},
      {"placed", plan.placements.size()},
      {"waiting", plan.waiting.size()},
      {"promised", promised},
      {"median_ms", Quantile(ms, 0.5)},
      {"p99_ms", Quantile(ms, 0.99)},
      {"us_per_request", 1e3 * Quantile(ms, 0.5) / static_cast<double>(snapshot.requests.size())}};
}

Json Decision(int plans) {
  Json results = Json::array();
  for (const int nodes : {100, 1000, 10'000}) {
    Cluster cluster(nodes, kGpus, kGpus);
    for (int i = 0; i < nodes; i += 2)
      cluster.Fill(cluster.snapshot.nodes[static_cast<std::size_t>(i)], true);
    cluster.Ask(1, kGpus, 1);
    results.push_back(Timed(cluster.snapshot, plans));
  }
  return results;
}

Json Wide(int plans) {
  Cluster cluster(6000, kGpus, kGpus);
  for (std::size_t i = 0; i < 6000; i += 2) cluster.Fill(cluster.snapshot.nodes[i], true);
  cluster.Ask(64, kGpus, 1);
  return Timed(cluster.snapshot, plans);
}

Json Backlog(int plans) {
  Json results;
  for (const bool limited : {false, true}) {
    Cluster cluster(10'000, kGpus, kGpus);
    for (NodeCapacity& node : cluster.snapshot.nodes) cluster.Fill(node, limited);
    for (int i = 0; i < 10'000; ++i) {
      GangRequest& request = cluster.Ask(1 + static_cast<int>(cluster.random() % 8), kGpus, 1);
      if (limited) request.length = std::chrono::hours(1 + cluster.random() % 10);
    }
    results[limited ? "with_limits" : "without_limits"] =
        Timed(cluster.snapshot, std::max(plans / 20, 1));
  }
  return results;
}

// 40 parents with 50 children each. Every second child has a ceiling below what it asks for; the
// guarantees are two thirds of what the others do.
Json ManyQueues(int plans) {
  constexpr int kParents = 40, kChildren = 50, kGangs = 30, kCeiling = 20, kGuarantee = 16;
  QueueTree tree;
  for (int p = 0; p < kParents; ++p)
    tree.queues.push_back({.name = "p" + std::to_string(p), .leaf = false});
  for (int i = 0; i < kParents * kChildren; ++i) {
    QueueSpec queue{.name = "q" + std::to_string(i), .parent = i % kParents};
    queue.guarantee.slots = kGuarantee;
    if (i / kParents % 2 == 0) queue.ceiling.slots = kCeiling;
    tree.queues.push_back(queue);
  }
  Cluster cluster(1000, 64, 0);
  for (int gang = 0; gang < kGangs; ++gang) {
    for (int i = 0; i < kParents * kChildren; ++i) cluster.Ask(1, 1, 0).queue = kParents + i;
  }
  cluster.snapshot.queues = &tree;
  const SchedulePlan plan = Plan(cluster.snapshot);
  std::map<std::string, int> by_queue;
  const auto index = [](const JobId& job) { return std::stoi(job.value.substr(4)) - 1; };
  for (const GangPlacement& placed : plan.placements)
    ++by_queue[std::to_string(index(placed.job) % (kParents * kChildren))];
  int borrowing = 0, bound = 0;
  for (const auto& [queue, count] : by_queue) {
    borrowing += std::max(0, count - kGuarantee);
    bound += count == kCeiling ? 1 : 0;
  }
  Json result = Timed(cluster.snapshot, std::max(plans / 100, 1));
  result["queues"] = kParents * kChildren;
  result["started_by_borrowing"] = borrowing;
  result["queues_at_their_ceiling"] = bound;
  return result;
}

// `bound`: claimants and victims are below a ceiling that is reached, and victims end at times of
// their own.
Json Reclaims(int plans, bool bound) {
  constexpr int kClaimants = 20, kNodes = 51;
  QueueTree tree = DefaultTree();
  tree.queues.push_back({.name = "all", .leaf = false});
  tree.queues.push_back({.name = "lends", .parent = 1});
  tree.queues.push_back({.name = "claims", .parent = 1});
  if (bound) tree.queues[1].ceiling.slots = kClaimants * kNodes * kGpus;
  Cluster cluster(kClaimants * kNodes, kGpus, 0);
  SchedulerSnapshot& snapshot = cluster.snapshot;
  snapshot.queues = &tree;
  for (NodeCapacity& node : snapshot.nodes) {
    RunningGang gang{.job = {"of-" + node.name.value},
                     .queue = 2,
                     .amounts = {.slots = kGpus},
                     .parts = {{node.name, node.free}},
                     .victim_from = snapshot.now,
                     .nodes = 1,
                     .least_nodes = 1,
                     .node_amounts = {.slots = kGpus},
                     .leaves_in = std::chrono::minutes(2),
                     .cost = static_cast<double>(1 + cluster.random() % 1000)};
    if (bound) gang.ends = snapshot.now + std::chrono::seconds(3600 + cluster.random() % 36'000);
    if (bound) gang.leaves_in += std::chrono::seconds(cluster.random() % 600);
    node.free = {};
    snapshot.running.push_back(gang);
  }
  for (int i = 0; i < kClaimants; ++i) {
    GangRequest& request = cluster.Ask(kNodes, kGpus, 0);
    request.queue = 3;
    request.class_value = 1;
  }
  Json result = Timed(snapshot, std::max(plans / 20, 1));
  result["victims"] = Plan(snapshot).reclaims.size();
  return result;
}

Json GivingWay(int plans) {
  Json results;
  results["by_class"] = Reclaims(plans, false);
  results["below_a_ceiling"] = Reclaims(plans, true);
  return results;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  using muster::Json;
  const std::map<std::string, std::function<Json(int)>> parts = {
      {"decision", muster::Decision},
      {"wide", muster::Wide},
      {"backlog", muster::Backlog},
      {"many_queues", muster::ManyQueues},
      {"reclaim", muster::GivingWay}};
  CLI::App app("What a pass of the scheduler costs, as JSON");
  int plans = 200;
  std::vector<std::string> only;
  app.add_option("--plans", plans, "Passes of the small parts")->check(CLI::Range(1, 100'000));
  app.add_option("--only", only, "Parts")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  Json result = {{"benchmark", "schedule"}};
  for (const auto& [name, part] : parts)
    if (only.empty() || std::ranges::find(only, name) != only.end()) result[name] = part(plans);
  std::printf("%s\n", result.dump(1).c_str());
  return 0;
}
