#include "trainer/plan/memory_plan.h"

#include <algorithm>
#include <utility>

#include "trainer/fsdp/state_plan.h"
#include "trainer/model/activation_bytes.h"
#include "trainer/model/adapters.h"
#include "trainer/state/snapshot/buddy.h"

namespace muster {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
// Memory of a process on a CPU before its first array (libraries, their tables, threads' stacks),
// and what products of 16-bit types keep: kernels, or factors in fp32 (products.h). Measured on
// x86-64 with LibTorch 2.11; a processor with products of bf16 takes 15 MiB less of the latter.
constexpr std::int64_t kHostRuntime = 129 * kMiB;
constexpr std::int64_t kHalfKernels = 24 * kMiB;
// And for the narrow products of adapters, measured at ranks 8 and 64: what 16-bit types take,
// and others.
constexpr std::int64_t kHalfAdapterKernels = 9 * kMiB;
constexpr std::int64_t kAdapterKernels = 13 * kMiB;
// Memory of a rank on a GPU. Not measured, there was none: CUDA's context and kernels, NCCL's
// buffers for its two communicators with our scratch, and what the allocator cannot use of
// activations.
constexpr std::int64_t kGpuRuntime = 700 * kMiB;
constexpr std::int64_t kNcclBuffers = 1000 * kMiB;
constexpr std::int64_t kGpuHostRuntime = 2500 * kMiB;
constexpr int kAllocatorShare = 20;  // one in so many bytes

constexpr char kCheckpointCopy[] = "checkpoint copy";
constexpr char kRuntime[] = "runtime";

std::int64_t SizeOf(ElementType type) { return static_cast<std::int64_t>(ElementSize(type)); }

class Planner {
 public:
  Planner(const PlanJob& job, PlanLayout layout)
      : job_(job),
        layout_(std::move(layout)),
        precision_(layout_.precision),
        on_host_(job.on_host()) {}

  MemoryPlan Run();

 private:
  void Add(const char* name, std::int64_t bytes, bool host, bool shared = false,
           std::int64_t of_others = 0);
  void AddPlacement();
  void AddSnapshots();
  void AddActivations();
  void AddRuntime();
  void SumUp();

  const PlanJob& job_;
  const PlanLayout layout_;
  const Precision precision_;
  const bool on_host_;
  MemoryPlan plan_;
};

void Planner::Add(const char* name, std::int64_t bytes, bool host, bool shared,
                  std::int64_t of_others) {
  if (bytes == 0) return;
  const bool in_host = host || on_host_;
  plan_.parts.push_back({.name = name,
                         .device = in_host ? 0 : bytes,
                         .host = in_host ? bytes : 0,
                         .shared = shared,
                         .of_others = of_others});
}

void Planner::AddPlacement() {
  const int ranks = layout_.mesh.shard_size;
  for (const FlatBuffer& each : layout_.placement.buffers()) {
    // A rank has pages of the experts that it computes.
    Add(each.name, each.bytes() - each.bytes_of_others(), each.memory == MemoryKind::kHost,
        each.memory == MemoryKind::kCommon, each.bytes_of_others());
    // On one host a rank reads its part of its peers' slots, and has these pages then as well.
    if (each.memory == MemoryKind::kPerRank) {
      Add("peers' slots", each.bytes() * (ranks - 1) / ranks, false, true);
    }
  }
}

void Planner::AddSnapshots() {
  // What checkpoints are written from, at the last step at the latest: a copy, or a third slot
  // beside the snapshot's.
  std::int64_t state = 0;
  for (const ShardArray& array : StateArrays(layout_.placement.trained, 0, precision_)) {
    state += static_cast<std::int64_t>(array.bytes());
  }
  Add(kCheckpointCopy, state, true);
  const FlatBuffer& snapshots = layout_.placement.snapshots;
  Add(snapshots.name, snapshots.bytes(), true);
  const bool copies = WantsBuddy({.wanted = job_.train.snapshot.buddy,
                                  .ranks_per_node = job_.resources.ranks_per_node,
                                  .replicas = layout_.mesh.replicas},
                                 job_.world_size());
  if (copies) Add("buddy snapshots", snapshots.bytes(), true);
}

void Planner::AddActivations() {
  const std::vector<FlatUnit>& units = layout_.placement.trained.units();
  const bool trains_embedding = !units.front().tensors.empty();
  const bool tied = job_.model.tie_word_embeddings;
  const bool trains_head = std::ranges::any_of(units.back().tensors, [](const FlatTensor& tensor) {
    return tensor.spec.role == TensorRole::kHead;
  });
  const ActivationBytes bytes = MeasureActivations(
      job_.model, {.rows = job_.train.batch.per_rank,
                   .length = job_.row_length(),
                   .compute = precision_.compute,
                   .level = job_.train.fsdp.activation_checkpointing,
                   .on_host = on_host_,
                   .lora = job_.train.lora ? LoraOf(job_.model, *job_.train.lora) : BlockLora(),
                   .trains_head = tied ? trains_embedding : trains_head,
                   .largest_packed = layout_.largest_matrix,
                   .expert_ways = layout_.mesh.expert_ways});
  Add("activations", bytes.blocks, false);
  Add("attention scores", bytes.scores, false);
  Add("activations", bytes.host_inputs, true);
  std::int64_t head = bytes.head;
  // A tied head's gradient waits for the embedding's.
  if (tied && trains_embedding)
    head += job_.model.vocab_size * job_.model.hidden_size * SizeOf(precision_.compute);
  Add("head and logits", head, false);
  if (!on_host_) Add(kRuntime, (bytes.blocks + head) / kAllocatorShare, false);
}

void Planner::AddRuntime() {
  if (on_host_) {
    const bool half = SizeOf(precision_.compute) == 2;
    const std::int64_t narrow = half ? kHalfAdapterKernels : kAdapterKernels;
    return Add(kRuntime, kHostRuntime + (half ? kHalfKernels : 0) + (job_.train.lora ? narrow : 0),
               true);
  }
  Add(kRuntime, kGpuRuntime + (job_.world_size() > 1 ? kNcclBuffers : 0), false);
  Add(kRuntime, kGpuHostRuntime, true);
}

void Planner::SumUp() {
  std::int64_t shared = 0;
  for (const MemoryPart& part : plan_.parts) {
    plan_.device_bytes += part.device;
    plan_.host_bytes += part.host;
    if (part.shared) shared += part.host;
    plan_.node_host_bytes += part.of_others;
  }
  const int ranks = job_.resources.ranks_per_node;
  // Replicas hold the same, so one of them writes checkpoints.
  const int writers = std::min(ranks, layout_.mesh.shard_size);
  plan_.node_host_bytes +=
      ranks * (plan_.host_bytes - shared) + shared - (ranks - writers) * plan_.Of(kCheckpointCopy);
}

MemoryPlan Planner::Run() {
  AddPlacement();
  AddActivations();
  AddSnapshots();
  AddRuntime();
  SumUp();
  return plan_;
}

}  // namespace

std::int64_t MemoryPlan::Of(std::string_view name) const {
  std::int64_t bytes = 0;
  for (const MemoryPart& part : parts)
    if (part.name == name) bytes += part.device + part.host;
  return bytes;
}

Result<MemoryPlan> PlanMemory(const PlanJob& job) {
  MUSTER_ASSIGN_OR_RETURN(PlanLayout layout, LayOutPlan(job));
  return Planner(job, std::move(layout)).Run();
}

}  // namespace muster
