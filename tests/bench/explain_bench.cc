// How long `muster explain` takes on a full cluster: explain_bench NODES JOBS [EXPLAINED].
//
// Nodes of 8 GPUs, all busy; gangs of 1 to 16 nodes, one in four without a time limit; JOBS wait.
// Prints the pass that the first question about a snapshot makes, with its record, and after it
// explanations of jobs throughout the queue (explain) and of jobs that are not submitted (plan), in
// milliseconds of a processor.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "coordinator/scheduler/explanation.h"

namespace muster {
namespace {

constexpr int kGpus = 8;

double Millis(std::clock_t since) {
  return 1e3 * static_cast<double>(std::clock() - since) / CLOCKS_PER_SEC;
}

struct Cluster {
  std::vector<NodeInventory> inventories;
  SchedulerSnapshot snapshot;
  std::vector<GangWithNodes> gangs;
};

GangRequest RandomJob(std::mt19937& engine, int number) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(engine);
  };
  GangRequest job;
  job.job = JobId{"j" + std::to_string(number)};
  job.submit_order = static_cast<std::uint64_t>(number) + 1;
  job.nodes = 1 << pick(0, 4);
  job.demand.ranks = 1 << pick(0, 3);
  job.demand.devices.per_rank = 1;
  job.demand.cpus_per_rank = 4;
  job.priority = 50 + pick(0, 1);
  if (pick(1, 4) > 1) job.length = std::chrono::minutes(10 * pick(3, 144));
  return job;
}

void Begin(Cluster& cluster, const GangRequest& job, const GangPlacement& placement,
           std::map<NodeName, NodeCapacity*>& nodes) {
  SchedulerSnapshot& snapshot = cluster.snapshot;
  RunningGang gang{.amounts = job.AmountsOf(job.nodes), .ends = EndOf(snapshot.now, job.length)};
  for (std::size_t i = 0; i < placement.nodes.size(); ++i) {
    const NodeParts parts{
        .slots = job.demand.ranks, .devices = placement.node_devices[i], .cpus = job.demand.cpus()};
    NodeParts& free = nodes.at(placement.nodes[i])->free;
    free.slots -= parts.slots;
    free.devices &= ~parts.devices;
    free.cpus -= parts.cpus;
    gang.parts.push_back({placement.nodes[i], parts});
  }
  snapshot.running.push_back(gang);
  cluster.gangs.push_back({.job = job.job, .nodes = placement.nodes, .ends = gang.ends});
}

// What a pass decides is done.
int Run(Cluster& cluster, std::map<NodeName, NodeCapacity*>& nodes) {
  SchedulerSnapshot& snapshot = cluster.snapshot;
  std::map<JobId, GangRequest> jobs;
  for (GangRequest& job : snapshot.requests) jobs.emplace(job.job, std::move(job));
  snapshot.requests.clear();
  for (const auto& [id, job] : jobs) snapshot.requests.push_back(job);
  const SchedulePlan plan = Plan(snapshot);
  for (const GangPlacement& placement : plan.placements) {
    Begin(cluster, jobs.at(placement.job), placement, nodes);
    jobs.erase(placement.job);
  }
  for (const WaitingJob& waiting : plan.waiting) {
    GangRequest& job = jobs.at(waiting.job);
    job.promise = waiting.promise;
    job.collecting = waiting.collects;
    if (waiting.promise) job.turn = std::min(job.turn, waiting.promise->start);
  }
  snapshot.requests.clear();
  for (auto& [id, job] : jobs) snapshot.requests.push_back(std::move(job));
  return static_cast<int>(plan.placements.size());
}

double Percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

void Measure(int nodes, int jobs, int explained) {
  std::mt19937 engine(1);
  Cluster cluster;
  cluster.inventories.resize(static_cast<std::size_t>(nodes));
  QueueTree tree = DefaultTree();
  tree.classes.push_back({"urgent", 10});
  tree.queues.push_back({.name = "other"});
  SchedulerSnapshot& snapshot = cluster.snapshot;
  snapshot.queues = &tree;
  for (int n = 0; n < nodes; ++n) {
    NodeInventory& has = cluster.inventories[static_cast<std::size_t>(n)];
    for (int g = 0; g < kGpus; ++g)
      has.devices.push_back({.id = "GPU-" + std::to_string(g), .kind = "NVIDIA H100 80GB HBM3"});
    has.cpus = 128;
    has.labels = {{"pool", "a"}};
    const NodeParts all{.slots = kGpus, .devices = 255, .cpus = 128};
    snapshot.nodes.push_back({.name = NodeName{"n" + std::to_string(n)},
                              .inventory = &has,
                              .all = all,
                              .free = all,
                              .domain = {}});
  }
  std::map<NodeName, NodeCapacity*> by_name;
  for (NodeCapacity& node : snapshot.nodes) by_name[node.name] = &node;
  int next = 0;
  do {
    while (static_cast<int>(snapshot.requests.size()) < jobs)
      snapshot.requests.push_back(RandomJob(engine, next++));
  } while (Run(cluster, by_name) > 0);
  std::vector<double> passes;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t began = std::clock();
    const KnownPlan pass(snapshot, cluster.gangs);
    passes.push_back(Millis(began));
  }
  const KnownPlan known(snapshot, cluster.gangs);
  std::vector<double> waiting, added;
  std::size_t changes = 0;
  const auto ask = [&](const ExplainQuestion& question, std::vector<double>& took) {
    const std::clock_t began = std::clock();
    changes += Explain(known, question).changes.size();
    took.push_back(Millis(began));
  };
  for (int i = 0; i < explained; ++i) {
    const auto at = snapshot.requests.size() * static_cast<std::size_t>(i) /
                    static_cast<std::size_t>(explained);
    ExplainQuestion question{
        .job = snapshot.requests[at].job, .queues = {1}, .least_length = std::chrono::minutes(4)};
    ask(question, waiting);
    question.added = RandomJob(engine, next++);
    ask(question, added);
  }
  std::printf(
      "%d nodes, %d jobs wait, %zu gangs: pass %.1f, explain p50 %.1f, p99 %.1f, plan p50 %.1f, "
      "p99 "
      "%.1f ms; %.1f changes each\n",
      nodes, jobs, snapshot.running.size(), Percentile(passes, 0.5), Percentile(waiting, 0.5),
      Percentile(waiting, 0.99), Percentile(added, 0.5), Percentile(added, 0.99),
      static_cast<double>(changes) / (2 * explained));
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: explain_bench NODES JOBS [EXPLAINED]\n");
    return 2;
  }
  muster::Measure(std::atoi(argv[1]), std::atoi(argv[2]), argc > 3 ? std::atoi(argv[3]) : 100);
}
