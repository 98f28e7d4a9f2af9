#include "coordinator/replay/schedule_record.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "common/base/ids.h"
#include "common/base/version.h"
#include "common/job_spec/job_spec.h"
#include "common/job_spec/job_times.h"
#include "common/wire/inventory_codec.h"
#include "coordinator/queues/share_tree.h"

namespace muster {
namespace {

// The bindings below name every field of the scheduler's input, so that a new one is not forgotten.

std::int64_t ToCount(TimePoint time) { return time.time_since_epoch().count(); }
TimePoint ToTime(std::int64_t count) { return TimePoint(Duration(count)); }

template <typename Tag, typename List>
void Add(const std::vector<StringId<Tag>>& from, List* to) {
  for (const StringId<Tag>& id : from) to->Add(std::string(id.value));
}

template <typename List>
std::vector<NodeName> NodesOf(const List& from) {
  std::vector<NodeName> names;
  for (const std::string& name : from) names.push_back(NodeName{name});
  return names;
}

template <typename List>
std::vector<std::string> TextsOf(const List& from) {
  return {from.begin(), from.end()};
}

// --- to messages ---

void Fill(const Amounts& from, v1::ScheduleAmounts* to) {
  const auto& [gpus, slots, jobs] = from;
  to->set_gpus(gpus);
  to->set_slots(slots);
  to->set_jobs(jobs);
}

void Fill(const NodeParts& from, v1::ScheduleParts* to) {
  const auto& [slots, devices, cpus, memory_bytes] = from;
  to->set_slots(slots);
  to->set_devices(devices);
  to->set_cpus(cpus);
  to->set_memory_bytes(memory_bytes);
}

void Fill(const HeldParts& from, v1::ScheduleHeldParts* to) {
  const auto& [node, parts, lent] = from;
  to->set_node(node.value);
  Fill(parts, to->mutable_parts());
  to->set_lent(lent);
}

void Fill(const NodeDemand& from, v1::ScheduleDemand* to) {
  const auto& [ranks, devices, cpus_per_rank, memory_per_rank, labels, topology] = from;
  to->set_ranks(ranks);
  to->set_devices_per_rank(devices.per_rank);
  to->mutable_device_kinds()->Add(devices.kinds.begin(), devices.kinds.end());
  to->set_device_memory_bytes(devices.min_memory_bytes);
  to->set_cpus_per_rank(cpus_per_rank);
  to->set_memory_per_rank(memory_per_rank);
  for (const LabelRule& rule : labels) {
    v1::ScheduleLabelRule& label = *to->add_labels();
    label.set_key(rule.key);
    label.set_kind(static_cast<int>(rule.kind));
    label.mutable_values()->Add(rule.values.begin(), rule.values.end());
  }
  to->set_within(static_cast<int>(topology.within));
  to->set_within_required(topology.required);
}

void Fill(const Promise& from, v1::SchedulePromise* to) {
  const auto& [start, nodes, devices] = from;
  to->set_start(ToCount(start));
  Add(nodes, to->mutable_nodes());
  to->mutable_devices()->Add(devices.begin(), devices.end());
}

// Failure domains by number, in the order of their first nodes: what they are called decides
// nothing, and may be the id of a host's boot.
class Domains {
 public:
  std::string NumberOf(const std::string& domain) {
    if (domain.empty()) return "";
    return std::to_string(numbers_.emplace(domain, numbers_.size()).first->second);
  }

 private:
  std::map<std::string, std::size_t> numbers_;
};

void Fill(const GangRequest& from, Domains& numbers, v1::ScheduleRequest* to) {
  const auto& [job, nodes, min_nodes, spares, demand, queue, class_value, priority, submit_order,
               length, promise, turn, collecting, exclude, former_nodes, preferred, held, domains,
               place, recovering, share_spares, preemptible] = from;
  to->set_job(job.value);
  to->set_nodes(nodes);
  to->set_min_nodes(min_nodes);
  to->set_spares(spares);
  Fill(demand, to->mutable_demand());
  to->set_queue(queue);
  to->set_class_value(class_value);
  to->set_priority(priority);
  to->set_submit_order(submit_order);
  to->set_length(length.count());
  if (promise) Fill(*promise, to->mutable_promise());
  to->set_turn(ToCount(turn));
  Add(collecting, to->mutable_collecting());
  Add(exclude, to->mutable_exclude());
  Add(former_nodes, to->mutable_former_nodes());
  Add(preferred, to->mutable_preferred());
  for (const HeldParts& each : held) Fill(each, to->add_held());
  for (const std::string& domain : domains) to->add_domains(numbers.NumberOf(domain));
  to->set_place(place);
  to->set_recovering(recovering);
  to->set_share_spares(share_spares);
  to->set_preemptible(preemptible);
}

void Fill(const RunningGang& from, v1::ScheduleGang* to) {
  const auto& [job, queue, class_value, amounts, ends, parts, gives_way_to, victim_from, placed,
               nodes, least_nodes, node_amounts, leaves_in, cost] = from;
  to->set_job(job.value);
  to->set_queue(queue);
  to->set_class_value(class_value);
  Fill(amounts, to->mutable_amounts());
  to->set_ends(ToCount(ends));
  for (const HeldParts& each : parts) Fill(each, to->add_parts());
  to->set_gives_way_to(gives_way_to.value);
  to->set_victim_from(ToCount(victim_from));
  to->set_placed(ToCount(placed));
  to->set_nodes(nodes);
  to->set_least_nodes(least_nodes);
  Fill(node_amounts, to->mutable_node_amounts());
  to->set_leaves_in(leaves_in.count());
  to->set_cost(cost);
}

// Users by number: what they are called decides nothing.
std::string WithoutUser(const std::string& share, const std::string& number) {
  return IsOfUser(share) ? ShareName(QueueOfShare(share), number) : share;
}

void Fill(const QueueTree& from, v1::ScheduleSnapshot* to) {
  to->set_has_queues(true);
  for (const QueueSpec& spec : from.queues) {
    v1::ScheduleQueue& queue = *to->add_queues();
    queue.set_name(WithoutUser(spec.name, std::to_string(to->queues_size())));
    queue.set_parent(spec.parent);
    queue.set_leaf(spec.leaf);
    Fill(spec.guarantee, queue.mutable_guarantee());
    Fill(spec.ceiling, queue.mutable_ceiling());
    queue.set_weight(spec.weight);
  }
}

// Nodes of a kind share an inventory. What a device is called and why it is broken decides nothing.
class Inventories {
 public:
  explicit Inventories(v1::ScheduleSnapshot* to) : to_(to) {}

  int PlaceOf(const NodeInventory& inventory) {
    v1::NodeInventory message = ToProto(inventory);
    for (v1::Device& device : *message.mutable_devices()) {
      device.clear_id();
      device.clear_fault();
    }
    const auto [place, is_new] =
        places_.emplace(message.SerializeAsString(), to_->inventories_size());
    if (is_new) *to_->add_inventories() = std::move(message);
    return place->second;
  }

 private:
  v1::ScheduleSnapshot* to_;
  std::map<std::string, int> places_;
};

void Fill(const SchedulerSnapshot& from, v1::ScheduleSnapshot* to) {
  const auto& [now, requests, nodes, running, queues, usage] = from;
  to->set_now(ToCount(now));
  if (queues != nullptr) Fill(*queues, to);
  to->mutable_usage()->Add(usage.begin(), usage.end());
  Inventories inventories(to);
  Domains domains;
  for (const NodeCapacity& node : nodes) {
    const auto& [name, inventory, all, free, shared, lent, domain, usable_from] = node;
    v1::ScheduleNode& message = *to->add_nodes();
    message.set_name(name.value);
    message.set_inventory(inventories.PlaceOf(*inventory));
    Fill(all, message.mutable_all());
    Fill(free, message.mutable_free());
    Fill(shared, message.mutable_shared());
    Fill(lent, message.mutable_lent());
    message.set_domain(domains.NumberOf(domain));
    message.set_usable_from(ToCount(usable_from));
  }
  for (const GangRequest& request : requests) Fill(request, domains, to->add_requests());
  for (const RunningGang& gang : running) Fill(gang, to->add_running());
}

// --- from messages ---

Amounts Read(const v1::ScheduleAmounts& from) { return {from.gpus(), from.slots(), from.jobs()}; }

NodeParts Read(const v1::ScheduleParts& from) {
  return {from.slots(), from.devices(), from.cpus(), from.memory_bytes()};
}

HeldParts Read(const v1::ScheduleHeldParts& from) {
  return {.node = NodeName{from.node()}, .parts = Read(from.parts()), .lent = from.lent()};
}

NodeDemand Read(const v1::ScheduleDemand& from) {
  NodeDemand to{.ranks = from.ranks(),
                .devices = {from.devices_per_rank(), TextsOf(from.device_kinds()),
                            from.device_memory_bytes()},
                .cpus_per_rank = from.cpus_per_rank(),
                .memory_per_rank = from.memory_per_rank(),
                .topology = {static_cast<TopologyLevel>(from.within()), from.within_required()}};
  for (const v1::ScheduleLabelRule& rule : from.labels())
    to.labels.push_back(
        {rule.key(), static_cast<LabelRule::Kind>(rule.kind()), TextsOf(rule.values())});
  return to;
}

Promise Read(const v1::SchedulePromise& from) {
  return {
      ToTime(from.start()), NodesOf(from.nodes()), {from.devices().begin(), from.devices().end()}};
}

GangRequest Read(const v1::ScheduleRequest& from) {
  GangRequest to{.job = JobId{from.job()},
                 .nodes = from.nodes(),
                 .min_nodes = from.min_nodes(),
                 .spares = from.spares(),
                 .demand = Read(from.demand()),
                 .queue = from.queue(),
                 .class_value = from.class_value(),
                 .priority = from.priority(),
                 .submit_order = from.submit_order(),
                 .length = Duration(from.length()),
                 .turn = ToTime(from.turn()),
                 .collecting = NodesOf(from.collecting()),
                 .exclude = NodesOf(from.exclude()),
                 .former_nodes = NodesOf(from.former_nodes()),
                 .preferred = NodesOf(from.preferred()),
                 .domains = TextsOf(from.domains()),
                 .place = from.place(),
                 .recovering = from.recovering(),
                 .share_spares = from.share_spares(),
                 .preemptible = from.preemptible()};
  if (from.has_promise()) to.promise = Read(from.promise());
  for (const v1::ScheduleHeldParts& each : from.held()) to.held.push_back(Read(each));
  return to;
}

RunningGang Read(const v1::ScheduleGang& from) {
  RunningGang to{.job = JobId{from.job()},
                 .queue = from.queue(),
                 .class_value = from.class_value(),
                 .amounts = Read(from.amounts()),
                 .ends = ToTime(from.ends()),
                 .gives_way_to = JobId{from.gives_way_to()},
                 .victim_from = ToTime(from.victim_from()),
                 .placed = ToTime(from.placed()),
                 .nodes = from.nodes(),
                 .least_nodes = from.least_nodes(),
                 .node_amounts = Read(from.node_amounts()),
                 .leaves_in = Duration(from.leaves_in()),
                 .cost = from.cost()};
  for (const v1::ScheduleHeldParts& each : from.parts()) to.parts.push_back(Read(each));
  return to;
}

// --- what the scheduler takes for granted ---

// Within these, which are far from those of a cluster, no sum and no difference that the scheduler
// makes of counts or of times overflows.
constexpr std::int64_t kMaxSum = 1 << 29;  // of slots, GPUs or CPUs, over all nodes
constexpr int kMaxShares = 1 << 18;        // queues, and users of each
constexpr std::int64_t kMaxCpus = 1 << 20;
constexpr std::int64_t kMaxCpusPerRank = 1024;
constexpr std::uint64_t kMaxMemoryPerRank = std::uint64_t{1} << 50;
constexpr Duration kMaxSpan = std::chrono::seconds(kMaxSpanSeconds);
constexpr Duration kMaxUptime = kMaxSpan / 6;
constexpr Duration kMaxAgo = kMaxSpan / 5 * 3;

bool IsIn(std::int64_t value, std::int64_t least, std::int64_t most) {
  return value >= least && value <= most;
}
bool IsFigure(double value) { return std::isfinite(value) && value >= 0; }
bool IsSpan(std::int64_t count) { return IsIn(count, 0, 2 * kMaxSpan.count()); }

bool AreAmounts(const v1::ScheduleAmounts& amounts) {
  return amounts.gpus() >= 0 && amounts.slots() >= 0 && amounts.jobs() >= 0;
}

bool IsDemand(const v1::ScheduleDemand& demand) {
  if (!IsIn(demand.ranks(), 1, kMaxSlots) ||
      !IsIn(demand.devices_per_rank(), 0, kMaxDevicesPerNode / demand.ranks()) ||
      !IsIn(demand.cpus_per_rank(), 0, kMaxCpusPerRank) ||
      demand.memory_per_rank() > kMaxMemoryPerRank ||
      !IsIn(demand.within(), 0, static_cast<int>(TopologyLevel::kSwitch)))
    return false;
  return std::ranges::all_of(demand.labels(), [](const v1::ScheduleLabelRule& rule) {
    return IsIn(rule.kind(), 0, static_cast<int>(LabelRule::Kind::kAbsent));
  });
}

class SnapshotCheck {
 public:
  explicit SnapshotCheck(const v1::ScheduleSnapshot& snapshot) : snapshot_(snapshot) {}

  Status Run() {
    if (!IsIn(snapshot_.now(), 0, kMaxUptime.count())) return Broken("an impossible time");
    MUSTER_RETURN_IF_ERROR(CheckQueues());
    MUSTER_RETURN_IF_ERROR(CheckNodes());
    for (const v1::ScheduleGang& gang : snapshot_.running())
      if (!IsSound(gang)) return Broken("an impossible gang of job " + gang.job());
    std::set<std::string_view> jobs;
    for (const v1::ScheduleRequest& request : snapshot_.requests()) {
      if (!jobs.insert(request.job()).second) return Broken("two requests of " + request.job());
      if (!IsSound(request)) return Broken("an impossible request of job " + request.job());
    }
    return OkStatus();
  }

 private:
  // What a cluster has, summed.
  struct Sums {
    std::int64_t gpus = 0, slots = 0, cpus = 0;

    bool Add(std::int64_t more_gpus, std::int64_t more_slots, std::int64_t more_cpus) {
      gpus += more_gpus;
      slots += more_slots;
      cpus += more_cpus;
      return std::max({gpus, slots, cpus}) <= kMaxSum;
    }
  };

  static Status Broken(const std::string& what) { return DataLoss("it has " + what); }

  Status CheckQueues() const {
    if (snapshot_.has_queues() && snapshot_.queues().empty()) return Broken("no queue");
    if (snapshot_.queues_size() > kMaxShares) return Broken("too many queues");
    std::vector<int> depths;
    for (const v1::ScheduleQueue& queue : snapshot_.queues()) {
      const int parent = queue.parent();
      if (!IsIn(parent, -1, std::ssize(depths) - 1) || !std::isfinite(queue.weight()) ||
          !(queue.weight() > 0) || !AreAmounts(queue.guarantee()) || !AreAmounts(queue.ceiling()))
        return Broken("an impossible queue " + queue.name());
      depths.push_back(parent < 0 ? 1 : depths[static_cast<std::size_t>(parent)] + 1);
      const int deepest = kMaxQueueDepth + (IsOfUser(queue.name()) ? 1 : 0);
      if (depths.back() > deepest) return Broken("too deep a queue " + queue.name());
    }
    return std::ranges::all_of(snapshot_.usage(), IsFigure) ? OkStatus()
                                                            : Broken("an impossible usage");
  }

  Status CheckNodes() const {
    if (snapshot_.nodes_size() > kMaxClusterNodes) return Broken("too many nodes");
    for (const v1::NodeInventory& inventory : snapshot_.inventories())
      if (inventory.devices_size() > kMaxDevicesPerNode || inventory.cpus() < 0)
        return Broken("an impossible inventory of a node");
    std::set<std::string_view> names;
    for (const v1::ScheduleNode& node : snapshot_.nodes()) {
      if (!IsIn(node.inventory(), 0, snapshot_.inventories_size() - 1))
        return Broken("no inventory of node " + node.name());
      if (!names.insert(node.name()).second) return Broken("two nodes " + node.name());
      const int devices = snapshot_.inventories(node.inventory()).devices_size();
      const bool sound = std::ranges::all_of(
          std::initializer_list<const v1::ScheduleParts*>{&node.all(), &node.free(), &node.shared(),
                                                          &node.lent()},
          [devices](const v1::ScheduleParts* parts) {
            return static_cast<int>(std::bit_width(parts->devices())) <= devices &&
                   IsIn(parts->slots(), -kMaxSlots, kMaxSlots) &&
                   IsIn(parts->cpus(), -kMaxCpus, kMaxCpus);
          });
      if (!sound || !(ToTime(node.usable_from()) == TimePoint::min() || IsTime(node.usable_from())))
        return Broken("impossible parts of node " + node.name());
    }
    return OkStatus();
  }

  bool IsSound(const v1::ScheduleGang& gang) {
    if (!gang.gives_way_to().empty()) claimants_.insert(gang.gives_way_to());
    return IsQueue(gang.queue()) && AreSound(gang.amounts(), &amounts_) && IsTime(gang.ends()) &&
           AreSound(gang.parts()) && IsTime(gang.victim_from()) && IsTime(gang.placed()) &&
           IsIn(gang.nodes(), 0, kMaxClusterNodes) && IsIn(gang.least_nodes(), 0, gang.nodes()) &&
           IsIn(gang.node_amounts().gpus(), 0, kMaxDevicesPerNode) &&
           IsIn(gang.node_amounts().slots(), 0, kMaxSlots) && gang.node_amounts().jobs() == 0 &&
           IsSpan(gang.leaves_in()) && IsFigure(gang.cost());
  }

  bool IsSound(const v1::ScheduleRequest& request) {
    const v1::SchedulePromise& promise = request.promise();
    if (!IsQueue(request.queue()) || !IsDemand(request.demand()) ||
        !IsIn(request.nodes(), 0, kMaxClusterNodes) ||
        !IsIn(request.min_nodes(), 0, kMaxClusterNodes) ||
        !IsIn(request.spares(), 0, kMaxClusterNodes) ||
        !IsIn(request.priority(), 0, kMaxPriority) ||
        !IsIn(request.class_value(), -kMaxClassValue, kMaxClassValue) ||
        !(request.length() == kForever.count() || IsSpan(request.length())) ||
        !IsTime(request.turn()) || !AreSound(request.held()))
      return false;
    if (request.has_promise() &&
        (!IsTime(promise.start()) || promise.devices_size() != promise.nodes_size() ||
         std::set<std::string_view>(promise.nodes().begin(), promise.nodes().end()).size() !=
             static_cast<std::size_t>(promise.nodes_size())))
      return false;
    // What such a job will have counts from the start of the pass.
    if (!request.recovering() && !claimants_.contains(request.job())) return true;
    const std::int64_t ranks = std::int64_t{request.nodes()} * request.demand().ranks();
    return expected_.Add(ranks * request.demand().devices_per_rank(), ranks, 0);
  }

  static bool AreSound(const v1::ScheduleAmounts& amounts, Sums* sums) {
    return AreAmounts(amounts) && amounts.jobs() <= 1 &&
           sums->Add(amounts.gpus(), amounts.slots(), 0);
  }
  template <typename List>
  bool AreSound(const List& held) {
    return std::ranges::all_of(held, [this](const v1::ScheduleHeldParts& each) {
      const v1::ScheduleParts& parts = each.parts();
      return IsIn(parts.slots(), 0, kMaxSlots) && IsIn(parts.cpus(), 0, kMaxCpus) &&
             parts_.Add(0, parts.slots(), parts.cpus());
    });
  }
  bool IsQueue(int queue) const {
    return IsIn(queue, 0, snapshot_.has_queues() ? snapshot_.queues_size() - 1 : 0);
  }
  // Promises are chained, one time limit after the other: as far as times go.
  bool IsTime(std::int64_t count) const { return count >= snapshot_.now() - kMaxAgo.count(); }

  const v1::ScheduleSnapshot& snapshot_;
  std::set<std::string_view> claimants_;
  Sums amounts_, parts_, expected_;
};

// --- texts ---

// From `now` until then. A plan is read as it is in the file, so that both may be any numbers.
std::string SpanText(std::int64_t then, std::int64_t now, Times times) {
  const auto nanoseconds =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(then) - static_cast<std::uint64_t>(now));
  const std::int64_t seconds = nanoseconds / 1'000'000'000;
  std::string text = std::to_string(seconds / 3600) + "h " + std::to_string(seconds / 60 % 60) +
                     "m " + std::to_string(seconds % 60) + "s";
  if (times == Times::kNanoseconds)
    text += " " + std::to_string(nanoseconds % 1'000'000'000) + "ns";
  return text;
}

// As many digits as tell it from all others.
std::string FigureText(double figure) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), figure).ptr};
}

// "n1 [0 1], n2 [4 5]".
template <typename Names, typename Masks>
std::string NodesText(const Names& nodes, const Masks& devices) {
  std::string text;
  for (int n = 0; n < nodes.size(); ++n) {
    text += (n > 0 ? ", " : "") + nodes.Get(n);
    std::string ids;
    for (int i = 0; n < devices.size() && i < kMaxDevicesPerNode; ++i)
      if ((devices.Get(n) >> i & 1) != 0) ids += (ids.empty() ? "" : " ") + std::to_string(i);
    if (!ids.empty()) text += " [" + ids + "]";
  }
  return text;
}

std::string Text(const v1::SchedulePlacement& placement) {
  std::string text = placement.job();
  if (placement.nodes_size() > 0)
    text += " starts on " + NodesText(placement.nodes(), placement.devices());
  if (placement.spares_size() > 0)
    text += (placement.nodes_size() > 0 ? ", with spares " : " gets spares ") +
            NodesText(placement.spares(), placement.spare_devices());
  if (placement.lent_size() > 0)
    text +=
        ", lent " + NodesText(placement.lent(), google::protobuf::RepeatedField<std::uint64_t>());
  return text;
}

std::string Text(const v1::ScheduleReclaim& reclaim) {
  std::string how;
  if (reclaim.to_nodes() > 0)
    how = ", and goes on with " + std::to_string(reclaim.to_nodes()) + " nodes, without " +
          NodesText(reclaim.gives_up(), google::protobuf::RepeatedField<std::uint64_t>());
  return reclaim.victim() + " gives way to " + reclaim.claimant() + " (" + reclaim.cause() +
         "), at a cost of " + FigureText(reclaim.cost()) + " rank-seconds" + how;
}

std::string Text(const v1::ScheduleWaiting& waiting, std::int64_t now, Times times) {
  std::string text = waiting.job() + " waits: " + waiting.reason();
  if (waiting.has_promise())
    text += "; starts in " + SpanText(waiting.promise().start(), now, times) +
            " at the latest on " +
            NodesText(waiting.promise().nodes(), waiting.promise().devices());
  if (waiting.delayed() != Name(DelayCause::kNone)) text += "; delayed by " + waiting.delayed();
  if (waiting.collects_size() > 0)
    text += "; collects on " + NodesText(waiting.collects(), waiting.promise().devices());
  if (waiting.clears_size() > 0)
    text += "; waits for lent " +
            NodesText(waiting.clears(), google::protobuf::RepeatedField<std::uint64_t>());
  return text;
}

}  // namespace

v1::SchedulePlan ToProto(const SchedulePlan& plan) {
  v1::SchedulePlan to;
  for (const GangPlacement& placement : plan.placements) {
    const auto& [job, nodes, spares, node_devices, spare_devices, lent] = placement;
    v1::SchedulePlacement& message = *to.add_placements();
    message.set_job(job.value);
    Add(nodes, message.mutable_nodes());
    message.mutable_devices()->Add(node_devices.begin(), node_devices.end());
    Add(spares, message.mutable_spares());
    message.mutable_spare_devices()->Add(spare_devices.begin(), spare_devices.end());
    Add(lent, message.mutable_lent());
  }
  for (const WaitingJob& waiting : plan.waiting) {
    // The last one follows from those before it.
    [[maybe_unused]] const auto& [job, reason, promise, delayed, collects, clears, behind] =
        waiting;
    v1::ScheduleWaiting& message = *to.add_waiting();
    message.set_job(job.value);
    WaitReason told = reason;
    told.over_ceiling = WithoutUser(told.over_ceiling, "");
    message.set_reason(WaitText(told));
    if (promise) Fill(*promise, message.mutable_promise());
    message.set_delayed(std::string(Name(delayed)));
    Add(collects, message.mutable_collects());
    Add(clears, message.mutable_clears());
  }
  for (const Reclaim& reclaim : plan.reclaims) {
    const auto& [victim, to_nodes, gives_up, claimant, cause, cost] = reclaim;
    v1::ScheduleReclaim& message = *to.add_reclaims();
    message.set_victim(victim.value);
    message.set_to_nodes(to_nodes);
    Add(gives_up, message.mutable_gives_up());
    message.set_claimant(claimant.value);
    message.set_cause(std::string(Name(cause)));
    message.set_cost(cost);
  }
  to.set_again_at(ToCount(plan.again_at));
  return to;
}

v1::SchedulePass ToProto(const SchedulerSnapshot& snapshot, const SchedulePlan& plan,
                         std::int64_t unix_ms) {
  v1::SchedulePass pass;
  pass.set_unix_ms(unix_ms);
  pass.set_version(kVersion);
  Fill(snapshot, pass.mutable_snapshot());
  *pass.mutable_plan() = ToProto(plan);
  return pass;
}

Result<OwnedSnapshot> FromProto(const v1::ScheduleSnapshot& from) {
  MUSTER_RETURN_IF_ERROR(SnapshotCheck(from).Run());
  OwnedSnapshot owned;
  for (const v1::NodeInventory& inventory : from.inventories())
    owned.inventories.push_back(FromProto(inventory));
  SchedulerSnapshot& to = owned.snapshot;
  to.now = ToTime(from.now());
  if (from.has_queues()) {
    owned.queues = std::make_unique<QueueTree>();
    for (const v1::ScheduleQueue& queue : from.queues())
      owned.queues->queues.push_back({.name = queue.name(),
                                      .parent = queue.parent(),
                                      .leaf = queue.leaf(),
                                      .guarantee = Read(queue.guarantee()),
                                      .ceiling = Read(queue.ceiling()),
                                      .weight = queue.weight()});
    to.queues = owned.queues.get();
  }
  to.usage.assign(from.usage().begin(), from.usage().end());
  for (const v1::ScheduleNode& node : from.nodes())
    to.nodes.push_back({.name = NodeName{node.name()},
                        .inventory = &owned.inventories[static_cast<std::size_t>(node.inventory())],
                        .all = Read(node.all()),
                        .free = Read(node.free()),
                        .shared = Read(node.shared()),
                        .lent = Read(node.lent()),
                        .domain = node.domain(),
                        .usable_from = ToTime(node.usable_from())});
  for (const v1::ScheduleRequest& request : from.requests()) to.requests.push_back(Read(request));
  for (const v1::ScheduleGang& gang : from.running()) to.running.push_back(Read(gang));
  return owned;
}

Result<v1::SchedulePlan> Replan(const v1::SchedulePass& pass) {
  MUSTER_ASSIGN_OR_RETURN(const OwnedSnapshot owned, FromProto(pass.snapshot()));
  return ToProto(Plan(owned.snapshot));
}

std::vector<std::string> DecisionTexts(const v1::SchedulePlan& plan, std::int64_t now,
                                       Times times) {
  std::vector<std::string> texts;
  for (const v1::SchedulePlacement& placement : plan.placements()) texts.push_back(Text(placement));
  for (const v1::ScheduleWaiting& waiting : plan.waiting())
    texts.push_back(Text(waiting, now, times));
  for (const v1::ScheduleReclaim& reclaim : plan.reclaims()) texts.push_back(Text(reclaim));
  if (ToTime(plan.again_at()) != kNever)
    texts.push_back("a gang may give way in " + SpanText(plan.again_at(), now, times));
  return texts;
}

}  // namespace muster
