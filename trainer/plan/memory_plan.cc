#include "trainer/plan/memory_plan.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "trainer/fsdp/gradient_reducer.h"
#include "trainer/fsdp/unsharded_parameters.h"
#include "trainer/model/activation_bytes.h"
#include "trainer/model/adapters.h"
#include "trainer/state/snapshot/segment.h"

namespace muster {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
// Memory of a process on a CPU before its first array (libraries, their tables, threads' stacks),
// and what matrix libraries keep of kernels for 16-bit types. Measured on x86-64 with
// LibTorch 2.11.
constexpr std::int64_t kHostRuntime = 129 * kMiB;
constexpr std::int64_t kHalfKernels = 9 * kMiB;
// And for the narrow products of adapters, measured at ranks 8 and 64: what 16-bit types take,
// and others.
constexpr std::int64_t kHalfAdapterKernels = 24 * kMiB;
constexpr std::int64_t kAdapterKernels = 13 * kMiB;
// Memory of a rank on a GPU. Not measured, there was none: CUDA's context and kernels, NCCL's
// buffers for its two communicators with our scratch, and what the allocator cannot use of
// activations.
constexpr std::int64_t kGpuRuntime = 700 * kMiB;
constexpr std::int64_t kNcclBuffers = 1000 * kMiB;
constexpr std::int64_t kGpuHostRuntime = 2500 * kMiB;
constexpr int kAllocatorShare = 20;  // one in so many bytes
constexpr std::int64_t kStateAlignment = 64;

std::int64_t Aligned(std::int64_t bytes) {
  return (bytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
}

std::int64_t SizeOf(ElementType type) { return static_cast<std::int64_t>(ElementSize(type)); }

class Planner {
 public:
  Planner(const PlanJob& job, PlanLayout layout)
      : job_(job),
        layout_(std::move(layout)),
        precision_(layout_.precision),
        on_host_(job.on_host()),
        offloads_(job.train.fsdp.cpu_offload && !on_host_) {}

  MemoryPlan Run();

 private:
  bool sharded() const { return layout_.mesh.shard_size > 1; }
  bool takes_snapshots() const { return job_.supervised && job_.train.snapshot.every > 0; }
  bool state_on_host() const { return on_host_ || offloads_; }
  // The state lies in the slots of the snapshot (Engine::Allocate).
  bool in_segment() const {
    return takes_snapshots() && job_.train.snapshot.every == 1 && state_on_host();
  }
  bool reshards() const {
    const ShardingStrategy s = job_.train.fsdp.strategy;
    return s == ShardingStrategy::kFullShard || s == ShardingStrategy::kNoShard ||
           s == ShardingStrategy::kHybridShard;
  }
  // One array for the ranks of a host, in the place of slots.
  bool shares() const { return on_host_ && sharded() && layout_.shard_nodes == 1; }
  bool resident() const {
    if (offloads_ && reshards()) return false;
    return !sharded() || shares() || !reshards();
  }

  std::int64_t PerShard(ElementType type) const {
    std::int64_t bytes = 0;
    for (const FlatUnit& unit : layout_.trained.units())
      bytes += Aligned(unit.shard_count * SizeOf(type));
    return bytes;
  }
  std::int64_t Whole(ElementType type) const {
    std::int64_t bytes = 0;
    for (const FlatUnit& unit : layout_.trained.units()) bytes += unit.flat_count * SizeOf(type);
    return bytes;
  }
  std::int64_t OptimizerState() const {
    return PerShard(precision_.master) + 2 * PerShard(precision_.moments);
  }

  void Add(PartKind kind, std::int64_t bytes, bool host, bool shared = false);
  void AddState();
  void AddSnapshots();
  void AddGathered();
  void AddFrozen();
  void AddGradientSlots();
  void AddActivations();
  void AddRuntime();
  void SumUp();

  const PlanJob& job_;
  const PlanLayout layout_;
  const Precision precision_;
  const bool on_host_;
  const bool offloads_;
  MemoryPlan plan_;
};

void Planner::Add(PartKind kind, std::int64_t bytes, bool host, bool shared) {
  if (bytes == 0) return;
  const bool in_host = host || on_host_;
  plan_.parts.push_back(
      {.kind = kind, .device = in_host ? 0 : bytes, .host = in_host ? bytes : 0, .shared = shared});
}

// As ShardState: what gathers send lies in the gathered array where that is resident.
void Planner::AddState() {
  const bool host = state_on_host();
  const bool in_gathered = resident() && !offloads_;
  const bool has_copy = in_segment() || precision_.compute != precision_.master;
  if (!in_segment()) {
    if (has_copy || !in_gathered) Add(PartKind::kMaster, PerShard(precision_.master), host);
    Add(PartKind::kMoments, 2 * PerShard(precision_.moments), host);
  }
  Add(PartKind::kGradientSums, PerShard(precision_.gradient), host);
  if (has_copy && !in_gathered) Add(PartKind::kComputeCopy, PerShard(precision_.compute), host);
}

void Planner::AddSnapshots() {
  // What checkpoints are written from, at the last step at the latest.
  Add(PartKind::kCheckpointCopy, OptimizerState(), true);
  if (!takes_snapshots()) return;
  const std::int64_t slots = kSegmentSlots * OptimizerState();
  Add(PartKind::kSnapshots, slots, true);
  const BuddyCopies buddy = job_.train.snapshot.buddy;
  const bool copies =
      buddy == BuddyCopies::kOn || (buddy == BuddyCopies::kAuto && layout_.mesh.replicas == 1);
  if (copies && job_.resources.nodes > 1) Add(PartKind::kBuddy, slots, true);
}

void Planner::AddGathered() {
  if (resident() || job_.train.lora) {
    const bool shared = shares() && !offloads_;
    Add(PartKind::kGathered, Whole(precision_.compute), false, shared);
    return;
  }
  const std::array<std::int64_t, 4> counts = GatherSlotCounts(layout_.trained);
  const std::int64_t elements = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  Add(PartKind::kGathered, elements * SizeOf(precision_.compute), false);
}

// Frozen shards, and the slots that they are gathered into: two of blocks, embedding and head.
void Planner::AddFrozen() {
  if (layout_.frozen.empty()) return;
  std::int64_t shard = 0, whole = 0;
  for (const FrozenUnit& unit : layout_.frozen) {
    shard += unit.shard_bytes;
    whole += unit.bytes;
  }
  if (shares()) return Add(PartKind::kFrozen, whole, false, true);
  // Where all stays gathered, the shards lie in that array.
  if (!sharded() && !offloads_) return Add(PartKind::kFrozen, shard, false);
  if (!reshards() && !offloads_) return Add(PartKind::kGathered, whole, false);
  Add(PartKind::kFrozen, shard, offloads_);
  if (!reshards()) return Add(PartKind::kGathered, whole, false);
  std::int64_t slots[2] = {0, 0};
  for (std::size_t u = 1; u + 1 < layout_.frozen.size(); ++u)
    slots[u % 2] = std::max(slots[u % 2], layout_.frozen[u].bytes);
  Add(PartKind::kGathered,
      slots[0] + slots[1] + layout_.frozen.front().bytes + layout_.frozen.back().bytes, false);
}

void Planner::AddGradientSlots() {
  const GradientMemory memory = PlanGradientMemory(
      layout_.trained, precision_, sharded(), job_.train.fsdp.reduce_every_micro_batch, offloads_);
  const std::int64_t own = memory.slots * memory.slot_bytes + memory.local_bytes;
  Add(PartKind::kGradientSlots, own, false);
  // On one host a rank reads its part of its peers' slots, and has these pages then as well.
  if (shares()) {
    const std::int64_t peers = layout_.mesh.shard_size - 1;
    Add(PartKind::kPeerSlots, own * peers / layout_.mesh.shard_size, false, true);
  }
  if (!offloads_) return;
  std::int64_t longest = 0;
  for (const FlatUnit& unit : layout_.trained.units())
    longest = std::max(longest, unit.shard_count);
  const std::int64_t places = HostGradients::kPlaces * longest * SizeOf(precision_.gradient);
  Add(PartKind::kGradientSlots, places, false);
  Add(PartKind::kGradientSlots, places, true);
}

void Planner::AddActivations() {
  const ActivationBytes bytes = MeasureActivations(
      job_.model, {.rows = job_.train.batch.per_rank,
                   .length = job_.row_length(),
                   .compute = precision_.compute,
                   .level = job_.train.fsdp.activation_checkpointing,
                   .on_host = on_host_,
                   .lora = job_.train.lora ? LoraOf(job_.model, *job_.train.lora) : BlockLora(),
                   .largest_packed = layout_.largest_matrix});
  Add(PartKind::kActivations, bytes.blocks, false);
  Add(PartKind::kActivations, bytes.host_inputs, true);
  std::int64_t head = bytes.head;
  // A tied head's gradient waits for the embedding's.
  const bool trains_embedding = !layout_.trained.units().front().tensors.empty();
  if (job_.model.tie_word_embeddings && trains_embedding)
    head += job_.model.vocab_size * job_.model.hidden_size * SizeOf(precision_.compute);
  Add(PartKind::kHead, head, false);
  if (!on_host_) Add(PartKind::kRuntime, (bytes.blocks + head) / kAllocatorShare, false);
}

void Planner::AddRuntime() {
  if (on_host_) {
    const bool half = SizeOf(precision_.compute) == 2;
    const std::int64_t narrow = half ? kHalfAdapterKernels : kAdapterKernels;
    return Add(PartKind::kRuntime,
               kHostRuntime + (half ? kHalfKernels : 0) + (job_.train.lora ? narrow : 0), true);
  }
  Add(PartKind::kRuntime, kGpuRuntime + (job_.world_size() > 1 ? kNcclBuffers : 0), false);
  Add(PartKind::kRuntime, kGpuHostRuntime, true);
}

void Planner::SumUp() {
  std::int64_t shared = 0;
  for (const MemoryPart& part : plan_.parts) {
    plan_.device_bytes += part.device;
    plan_.host_bytes += part.host;
    if (part.shared) shared += part.host;
  }
  const int ranks = job_.resources.ranks_per_node;
  // Replicas hold the same, so one of them writes checkpoints.
  const int writers = std::min(ranks, layout_.mesh.shard_size);
  plan_.node_host_bytes = ranks * (plan_.host_bytes - shared) + shared -
                          (ranks - writers) * plan_.Of(PartKind::kCheckpointCopy);
}

MemoryPlan Planner::Run() {
  AddState();
  AddFrozen();
  AddGathered();
  AddGradientSlots();
  AddActivations();
  AddSnapshots();
  AddRuntime();
  SumUp();
  return plan_;
}

struct PartWords {
  PartKind kind;
  const char* name;
};

constexpr PartWords kPartNames[] = {
    {PartKind::kMaster, "master weights"},          {PartKind::kMoments, "moments"},
    {PartKind::kGradientSums, "gradient sums"},     {PartKind::kComputeCopy, "compute copy"},
    {PartKind::kFrozen, "frozen weights"},          {PartKind::kSnapshots, "snapshots"},
    {PartKind::kBuddy, "buddy snapshots"},          {PartKind::kGathered, "unsharded parameters"},
    {PartKind::kGradientSlots, "gradient slots"},   {PartKind::kPeerSlots, "peers' slots"},
    {PartKind::kActivations, "activations"},        {PartKind::kHead, "head and logits"},
    {PartKind::kCheckpointCopy, "checkpoint copy"}, {PartKind::kRuntime, "runtime"},
};

}  // namespace

std::int64_t MemoryPlan::Of(PartKind kind) const {
  std::int64_t bytes = 0;
  for (const MemoryPart& part : parts)
    if (part.kind == kind) bytes += part.device + part.host;
  return bytes;
}

std::string PartName(PartKind kind) {
  for (const PartWords& words : kPartNames)
    if (words.kind == kind) return words.name;
  return "";
}

std::string PartKey(PartKind kind) {
  std::string key = PartName(kind);
  std::erase(key, '\'');
  std::ranges::replace(key, ' ', '_');
  return key;
}

Result<MemoryPlan> PlanMemory(const PlanJob& job) {
  MUSTER_ASSIGN_OR_RETURN(PlanLayout layout, LayOutPlan(job));
  return Planner(job, std::move(layout)).Run();
}

}  // namespace muster
