#include "trainer/plan/time_plan.h"

#include <algorithm>
#include <cmath>

#include "trainer/plan/flops.h"

namespace muster {
namespace {

// The rate of a host that updates offloaded state, and of a CPU that trains: what a socket of
// servers reads and writes, shared by the ranks of a node.
constexpr double kHostMemoryRate = 100e9;
// What making 4-bit weights whole costs of a step (two to three in a hundred).
constexpr double kDequantising = 1.03;

// How often the blocks are gathered in a step and whether what was gathered stays.
class StepPlanner {
 public:
  enum class Link { kInside, kBetween };  // the ranks of a node, or nodes

  StepPlanner(const PlanJob& job, const PlanLayout& layout, const Hardware& hardware)
      : job_(job), layout_(layout), placement_(layout.placement), hardware_(hardware) {}

  TimePlan Run();

 private:
  bool sharded() const { return layout_.mesh.shard_size > 1; }
  bool shares() const { return placement_.gathered.buffer.memory == MemoryKind::kCommon; }
  bool keeps_gathered() const { return !ReshardsAfterForward(job_.train.fsdp.strategy); }
  int micro_batches() const { return job_.train.batch.accumulation; }
  std::int64_t micro_batch_tokens() const { return job_.train.batch.per_rank * job_.row_length(); }
  static double Size(ElementType type) { return static_cast<double>(ElementSize(type)); }

  double WholeElements() const;
  double GatheredElements(const FlatUnit& unit, Link link) const;
  Traffic Exchange() const;
  double GatheredBytes(Link link) const;
  double ReducedBytes(Link link) const;
  double BlockGathers(std::size_t blocks) const;
  void AddTraffic(TimePlan* plan) const;
  double OptimizerSeconds() const;
  double LinkSeconds(const Traffic& traffic) const;

  const PlanJob& job_;
  const PlanLayout& layout_;
  const Placement& placement_;
  const Hardware& hardware_;
};

double StepPlanner::WholeElements() const {
  double elements = 0;
  for (const FlatUnit& unit : placement_.trained.units())
    elements += static_cast<double>(unit.flat_count);
  return elements;
}

// Counts what a rank gathers as if it had nothing of its own. Where experts are divided, the ranks
// with the same ones gather these: on a node as many rings as it has parts of the experts.
double StepPlanner::GatheredElements(const FlatUnit& unit, Link link) const {
  const std::int64_t part = unit.flat_count / unit.slices;
  const double ranks = layout_.mesh.shard_size;
  if (ranks == 1) return static_cast<double>(part);
  const double received = static_cast<double>(part - unit.shard_count) * ranks / (ranks - 1);
  if (unit.slices == 1) return received;
  const int ways = layout_.mesh.expert_ways, per_node = job_.resources.ranks_per_node;
  if (link == Link::kBetween) return received * std::min(ways, per_node);
  return ways < per_node ? received : 0;
}

// Forward and backward rows go to their experts and back; backward that computes again sends them
// once more.
Traffic StepPlanner::Exchange() const {
  const double ways = layout_.mesh.expert_ways;
  if (ways == 1 || shares()) return {};
  const ActivationCheckpointing level = job_.train.fsdp.activation_checkpointing;
  const bool again =
      level == ActivationCheckpointing::kFull || level == ActivationCheckpointing::kFullOffload;
  const ModelConfig& model = job_.model;
  const double rows = static_cast<double>(micro_batch_tokens() * micro_batches() *
                                          model.experts->per_token * model.SparseLayers());
  const double bytes = rows * static_cast<double>(model.hidden_size) *
                       Size(layout_.precision.compute) * (again ? 5 : 4);
  const double per_node = job_.resources.ranks_per_node, inside = std::min(ways, per_node);
  return {.inside_gathered = bytes * (inside - 1) / ways,
          .between_gathered = bytes * (ways - inside) / ways * per_node};
}

// Gathers of each block, as a mean: the last two of a pass are still there for the next one.
double StepPlanner::BlockGathers(std::size_t blocks) const {
  if (keeps_gathered() || blocks <= 2) return 1;
  const auto all = static_cast<double>(blocks);
  return (all + (all - 2) * (2.0 * micro_batches() - 1)) / all;
}

// Bytes of a step: what would reach a rank if it had nothing of its own.
double StepPlanner::GatheredBytes(Link link) const {
  if (!sharded() && !job_.train.fsdp.cpu_offload) return 0;
  const double element = Size(layout_.precision.compute);
  const bool adapters = !placement_.frozen_units.empty();
  const std::vector<FlatUnit>& units = (adapters ? placement_.frozen : placement_.trained).units();
  double blocks = 0;
  for (std::size_t u = 1; u + 1 < units.size(); ++u) blocks += GatheredElements(units[u], link);
  if (!adapters) {
    const double ends =
        GatheredElements(units.front(), link) + GatheredElements(units.back(), link);
    return element * (ends + blocks * BlockGathers(units.size() - 2));
  }
  const double frozen = keeps_gathered() ? 0 : blocks * BlockGathers(units.size() - 2);
  return frozen + element * WholeElements();
}

double StepPlanner::ReducedBytes(Link link) const {
  const int times = job_.train.fsdp.reduce_every_micro_batch ? micro_batches() : 1;
  double elements = 0;
  for (const FlatUnit& unit : placement_.trained.units()) elements += GatheredElements(unit, link);
  return sharded() ? elements * Size(layout_.precision.gradient) * times : 0;
}

void StepPlanner::AddTraffic(TimePlan* plan) const {
  Traffic& traffic = plan->traffic;
  const double ranks = layout_.mesh.shard_size;
  const double others = (ranks - 1) / ranks;
  if (sharded() && !shares()) {
    const bool inside = job_.resources.ranks_per_node > 1;
    const bool between = layout_.shard_nodes > 1;
    if (inside) traffic.inside_gathered = GatheredBytes(Link::kInside) * others;
    if (between) traffic.between_gathered = GatheredBytes(Link::kBetween) * others;
    if (inside) traffic.inside_reduced = ReducedBytes(Link::kInside) * others;
    if (between) traffic.between_reduced = ReducedBytes(Link::kBetween) * others;
  }
  const Traffic exchange = Exchange();
  traffic.inside_gathered += exchange.inside_gathered;
  traffic.between_gathered += exchange.between_gathered;
  const double replicas = layout_.mesh.replicas;
  if (replicas > 1) {
    const double shard = WholeElements() / ranks * Size(layout_.precision.gradient);
    const double bytes = 2 * shard * (replicas - 1) / replicas;
    const bool between = job_.resources.nodes > 1;
    // Every rank of a node has replicas of its own elsewhere, or all are in one ring.
    if (between) traffic.between_reduced += bytes * ranks;
    if (layout_.mesh.shard_size == 1) traffic.inside_reduced += bytes;
  }
  if (job_.train.fsdp.cpu_offload && !job_.on_host()) {
    const double sums = WholeElements() / ranks * Size(layout_.precision.gradient);
    traffic.host = GatheredBytes(Link::kInside) / ranks + sums * micro_batches();
  }
}

double StepPlanner::LinkSeconds(const Traffic& traffic) const {
  const auto seconds = [](double bytes, double rate) { return rate > 0 ? bytes / rate : 0; };
  return std::max(
      {seconds(traffic.inside_gathered + traffic.inside_reduced, hardware_.link_rate),
       seconds(traffic.between_gathered + traffic.between_reduced, hardware_.network_rate),
       seconds(traffic.host, hardware_.host_rate)});
}

// AdamW reads and writes all there is of a weight once.
double StepPlanner::OptimizerSeconds() const {
  const Precision& p = layout_.precision;
  const double per_weight =
      2 * Size(p.master) + 4 * Size(p.moments) + Size(p.gradient) + Size(p.compute);
  const double bytes = WholeElements() / layout_.mesh.shard_size * per_weight;
  const bool on_host = job_.on_host() || job_.train.fsdp.cpu_offload;
  if (on_host) return bytes * job_.resources.ranks_per_node / kHostMemoryRate;
  return hardware_.memory_rate > 0 ? bytes / hardware_.memory_rate : 0;
}

TimePlan StepPlanner::Run() {
  TimePlan plan;
  AddTraffic(&plan);
  const FlopsOptions flops{.length = job_.row_length(),
                           .checkpointing = job_.train.fsdp.activation_checkpointing,
                           .adapter_parameters = layout_.active_adapter_parameters};
  const double own_tokens = static_cast<double>(micro_batch_tokens() * micro_batches());
  const double rate = hardware_.peak_tflops * 1e12 * hardware_.achievable;
  const double token_seconds =
      ExecutedFlops(job_.model, flops) / rate * (layout_.largest_matrix > 0 ? kDequantising : 1.0);
  plan.tokens = micro_batch_tokens() * micro_batches() * job_.world_size();
  plan.compute_seconds = own_tokens * token_seconds;
  plan.communication_seconds = LinkSeconds(plan.traffic);
  // Experts wait for their rows: only what is gathered and reduced beside them is hidden.
  const double exchange = LinkSeconds(Exchange());
  plan.exposed_seconds =
      exchange + std::max(0.0, plan.communication_seconds - exchange - plan.compute_seconds);
  plan.optimizer_seconds = OptimizerSeconds();
  plan.step_seconds = plan.compute_seconds + plan.exposed_seconds + plan.optimizer_seconds;
  plan.tokens_per_second = static_cast<double>(plan.tokens) / plan.step_seconds;
  plan.mfu = ModelFlopsUtilization(ModelFlops(job_.model, flops), plan.tokens_per_second,
                                   job_.world_size(), hardware_.peak_tflops);
  plan.hiding_tokens = static_cast<std::int64_t>(
      std::ceil(plan.communication_seconds / micro_batches() / token_seconds));
  return plan;
}

}  // namespace

Result<TimePlan> PlanTime(const PlanJob& job, const Hardware& hardware,
                          std::optional<std::int64_t> rows) {
  if (hardware.peak_tflops <= 0 || hardware.achievable <= 0) {
    return InvalidArgument("the peak of " + hardware.name + " is not known; give --peak-tflops");
  }
  MUSTER_ASSIGN_OR_RETURN(const PlanLayout layout, LayOutPlan(job));
  TimePlan plan = StepPlanner(job, layout, hardware).Run();
  const ScheduleSpec& schedule = job.train.schedule;
  if (schedule.max_steps > 0) {
    plan.steps = schedule.max_steps;
  } else if (rows) {
    const double batch = static_cast<double>(job.train.batch.per_rank) *
                         job.train.batch.accumulation * job.world_size();
    plan.steps =
        static_cast<std::int64_t>(std::ceil(schedule.epochs * static_cast<double>(*rows) / batch));
  }
  if (plan.steps) plan.hours = static_cast<double>(*plan.steps) * plan.step_seconds / 3600;
  return plan;
}

}  // namespace muster
