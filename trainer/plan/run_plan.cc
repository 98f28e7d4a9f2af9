#include "trainer/plan/run_plan.h"

#include <functional>
#include <string_view>
#include <utility>

#include "common/base/strings.h"

namespace muster {
namespace {

constexpr int kMostNodes = 64;
constexpr int kShortestRow = 512;
constexpr int kAdapterRank = 16;
// Every mixture takes these, and not each all-linear (CheckTrain).
const std::vector<std::string> kAttention = {"q_proj", "k_proj", "v_proj", "o_proj"};

bool FitsDevice(const MemoryPlan& memory, const Hardware& hardware) {
  return hardware.is_host || hardware.memory_bytes <= 0 ||
         static_cast<double>(memory.device_bytes) <= hardware.memory_bytes;
}

bool FitsHost(const MemoryPlan& memory, const Hardware& hardware) {
  return hardware.host_memory_bytes <= 0 ||
         static_cast<double>(memory.node_host_bytes) <= hardware.host_memory_bytes;
}

// A change of the job file that saves memory; false: it changes nothing here.
struct Change {
  std::string words;
  std::function<bool(PlanJob&)> apply;
};

bool Checkpoint(PlanJob& job, ActivationCheckpointing level) {
  ActivationCheckpointing& now = job.train.fsdp.activation_checkpointing;
  if (now >= level) return false;
  now = level;
  return true;
}

bool HalveMoments(PlanJob& job) {
  StateType& moments = job.train.optimizer.moments;
  const bool changes =
      moments != StateType::kBf16 && job.train.fsdp.mixed_precision != MixedPrecision::kFp64;
  moments = StateType::kBf16;
  return changes;
}

bool HalveSums(PlanJob& job) {
  StateType& sums = job.train.fsdp.reduce_dtype;
  const bool changes =
      sums != StateType::kBf16 && job.train.fsdp.mixed_precision == MixedPrecision::kBf16;
  if (changes) sums = StateType::kBf16;
  return changes;
}

bool OneRow(PlanJob& job) {
  BatchSpec& batch = job.train.batch;
  if (batch.per_rank == 1) return false;
  batch.accumulation *= std::exchange(batch.per_rank, 1);
  return true;
}

bool ShardAll(PlanJob& job) {
  return std::exchange(job.train.fsdp.strategy, ShardingStrategy::kFullShard) !=
         ShardingStrategy::kFullShard;
}

bool Offload(PlanJob& job) {
  return !job.on_host() && !std::exchange(job.train.fsdp.cpu_offload, true);
}

bool NoBuddy(PlanJob& job) {
  const bool changes = job.resources.nodes > 1 && job.train.snapshot.every > 0;
  return std::exchange(job.train.snapshot.buddy, BuddyCopies::kOff) != BuddyCopies::kOff && changes;
}

bool NoSnapshots(PlanJob& job) {
  return std::exchange(job.train.snapshot.every, 0) != 0 && job.supervised;
}

// Those that keep what is trained, the ones that cost least first.
std::vector<Change> Settings(const PlanJob& job) {
  const int rows = job.train.batch.per_rank * job.train.batch.accumulation;
  return {
      {"train.snapshot.buddy: off", NoBuddy},
      {"train.snapshot.every: 0", NoSnapshots},
      {"train.fsdp.strategy: full_shard", ShardAll},
      {"train.batch: {per_rank: 1, accumulation: " + std::to_string(rows) + "}", OneRow},
      {"train.fsdp.activation_checkpointing: full",
       [](PlanJob& j) { return Checkpoint(j, ActivationCheckpointing::kFull); }},
      {"train.optimizer.moments: bf16", HalveMoments},
      {"train.fsdp.reduce_dtype: bf16", HalveSums},
      {"train.fsdp.activation_checkpointing: full_offload",
       [](PlanJob& j) {
         return !j.on_host() && Checkpoint(j, ActivationCheckpointing::kFullOffload);
       }},
      {"train.fsdp.cpu_offload: true", Offload},
  };
}

class Adviser {
 public:
  Adviser(const PlanQuestion& question, double step_seconds)
      : question_(question), step_seconds_(step_seconds) {}

  std::vector<Suggestion> Run();

 private:
  // Whether the changed job fits; it is suggested then.
  bool Try(const std::string& words, const PlanJob& job);
  bool Helps(const PlanJob& before, const PlanJob& after) const;
  void TrySettings();
  void TryNodes();
  void TryShorterRows();
  void TryAdapters();

  const PlanQuestion& question_;
  const double step_seconds_;
  std::vector<Suggestion> found_;
};

bool Adviser::Try(const std::string& words, const PlanJob& job) {
  const Result<MemoryPlan> memory = PlanMemory(job);
  if (!memory.ok() || !FitsDevice(*memory, question_.hardware) ||
      !FitsHost(*memory, question_.hardware))
    return false;
  const Result<TimePlan> time = PlanTime(job, question_.hardware, question_.rows);
  const double tokens = static_cast<double>(question_.job.world_size()) / job.world_size();
  found_.push_back({.change = words,
                    .device_bytes = memory->decisive(),
                    .hours_factor = time.ok() ? time->step_seconds / step_seconds_ * tokens : 1.0});
  return true;
}

// Whether the change saves some of what there is too little of.
bool Adviser::Helps(const PlanJob& before, const PlanJob& after) const {
  const Result<MemoryPlan> was = PlanMemory(before), is = PlanMemory(after);
  if (!was.ok() || !is.ok()) return false;
  return (!FitsDevice(*was, question_.hardware) && is->device_bytes < was->device_bytes) ||
         (!FitsHost(*was, question_.hardware) && is->node_host_bytes < was->node_host_bytes);
}

// Each alone; where none is enough, one after the other until they are.
void Adviser::TrySettings() {
  const std::vector<Change> changes = Settings(question_.job);
  bool any = false;
  for (const Change& change : changes) {
    PlanJob job = question_.job;
    if (change.apply(job)) any = Try(change.words, job) || any;
  }
  if (any) return;
  PlanJob job = question_.job;
  std::string words;
  for (const Change& change : changes) {
    PlanJob changed = job;
    if (!change.apply(changed) || !Helps(job, changed)) continue;
    job = std::move(changed);
    words += (words.empty() ? "" : ", ") + change.words;
    if (Try(words, job)) return;
  }
}

void Adviser::TryNodes() {
  for (int nodes = 2 * question_.job.resources.nodes; nodes <= kMostNodes; nodes *= 2) {
    PlanJob job = question_.job;
    job.resources.nodes = nodes;
    if (Try("resources.nodes: " + std::to_string(nodes), job)) return;
  }
}

void Adviser::TryShorterRows() {
  for (int length = question_.job.train.data.max_seq_len / 2; length >= kShortestRow; length /= 2) {
    PlanJob job = question_.job;
    job.train.data.max_seq_len = length;
    if (Try("train.data.max_seq_len: " + std::to_string(length), job)) return;
  }
}

void Adviser::TryAdapters() {
  const TrainSpec& given = question_.job.train;
  const bool sparse = question_.job.model.SparseLayers() > 0;
  LoraSpec suggested{.r = kAdapterRank};
  if (sparse) suggested.target_modules = kAttention;
  const auto with = [&](bool quantised, bool offload) {
    PlanJob job = question_.job;
    if (!job.train.lora) job.train.lora = suggested;
    if (quantised) job.train.quantization.emplace();
    if (offload) Offload(job);
    return job;
  };
  const std::string lora = "train.lora: {r: " + std::to_string(kAdapterRank) +
                           (sparse ? ", target_modules: [" + Join(kAttention) + "]}" : "}");
  if (!given.lora && Try(lora, with(false, false))) return;
  if (given.quantization) return;
  const std::string nf4 =
      (given.lora ? "" : lora + ", ") + std::string("train.quantization: {kind: nf4}");
  if (Try(nf4, with(true, false)) || question_.job.on_host()) return;
  Try(nf4 + ", train.fsdp.cpu_offload: true", with(true, true));
}

std::vector<Suggestion> Adviser::Run() {
  TrySettings();
  TryNodes();
  TryShorterRows();
  TryAdapters();
  return std::move(found_);
}

}  // namespace

Result<RunPlan> PlanRun(const PlanQuestion& question) {
  RunPlan plan;
  plan.parameters = question.job.model.ParameterCount();
  MUSTER_ASSIGN_OR_RETURN(const PlanLayout layout, LayOutPlan(question.job));
  plan.adapter_parameters = layout.adapter_parameters;
  MUSTER_ASSIGN_OR_RETURN(plan.memory, PlanMemory(question.job));
  MUSTER_ASSIGN_OR_RETURN(plan.time, PlanTime(question.job, question.hardware, question.rows));
  plan.device_fits = FitsDevice(plan.memory, question.hardware);
  plan.host_fits = FitsHost(plan.memory, question.hardware);
  if (question.cost_per_hour > 0 && plan.time.hours)
    plan.cost = *plan.time.hours * question.cost_per_hour;
  if (!plan.fits()) plan.suggestions = Adviser(question, plan.time.step_seconds).Run();
  return plan;
}

}  // namespace muster
