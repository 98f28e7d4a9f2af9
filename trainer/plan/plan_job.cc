#include "trainer/plan/plan_job.h"

#include <algorithm>

#include "trainer/model/llama_units.h"

namespace muster {
namespace {

constexpr std::int64_t kLengthMultiple = 32;  // PadToFewLengths
constexpr std::int64_t kQuantBlock = 64;
constexpr std::int64_t kQuantSuperBlock = 16384;
constexpr std::int64_t kFrozenAlignment = 128;

std::int64_t RoundUp(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// "model.layers.3.self_attn.q_proj.weight" is of "q_proj".
std::string ModuleOf(const std::string& tensor) {
  const std::size_t end = tensor.rfind('.');
  const std::size_t begin = tensor.rfind('.', end - 1);
  return tensor.substr(begin + 1, end - begin - 1);
}

bool IsBlockLinear(const UnitTensor& tensor) {
  return tensor.shape.size() == 2 && tensor.name.find(".layers.") != std::string::npos;
}

bool Names(const std::vector<std::string>& modules, const std::string& module) {
  return std::ranges::find(modules, module) != modules.end();
}

bool IsTarget(const AdapterPlan& adapters, const UnitTensor& tensor) {
  if (!IsBlockLinear(tensor)) return false;
  return Names(adapters.target_modules, "all-linear") ||
         Names(adapters.target_modules, ModuleOf(tensor.name));
}

// What is trained of a unit: a pair of narrow matrices for each target.
UnitSpec AdapterUnit(const AdapterPlan& adapters, const UnitSpec& unit) {
  UnitSpec trained{.name = unit.name, .tensors = {}};
  for (const UnitTensor& tensor : unit.tensors) {
    if (IsTarget(adapters, tensor)) {
      trained.tensors.push_back({tensor.name + ".lora_A", {adapters.r, tensor.shape[1]}});
      trained.tensors.push_back({tensor.name + ".lora_B", {tensor.shape[0], adapters.r}});
    } else if (Names(adapters.modules_to_save, ModuleOf(tensor.name))) {
      trained.tensors.push_back({tensor.name, tensor.shape});
    }
  }
  return trained;
}

std::int64_t QuantisedBytes(std::int64_t elements, FrozenType type) {
  const std::int64_t blocks = (elements + kQuantBlock - 1) / kQuantBlock;
  const std::int64_t codes = (elements + 1) / 2;
  if (type == FrozenType::kNf4) return codes + 4 * blocks;
  return codes + blocks + 4 * ((elements + kQuantSuperBlock - 1) / kQuantSuperBlock);
}

FrozenUnit Freeze(const PlanJob& job, const UnitSpec& unit, const PlanLayout& layout) {
  const auto element = static_cast<std::int64_t>(ElementSize(layout.precision.compute));
  FrozenUnit frozen;
  std::int64_t bytes = 0;
  for (const UnitTensor& tensor : unit.tensors) {
    if (Names(job.adapters->modules_to_save, ModuleOf(tensor.name))) continue;
    const std::int64_t count = ElementCount(tensor.shape);
    const bool quantised = job.adapters->frozen != FrozenType::kCompute && IsBlockLinear(tensor);
    bytes += RoundUp(quantised ? QuantisedBytes(count, job.adapters->frozen) : count * element,
                     kFrozenAlignment);
    if (quantised) frozen.elements += count;
  }
  const int ranks = layout.mesh.shard_size;
  frozen.shard_bytes = RoundUp((bytes + ranks - 1) / ranks, kFrozenAlignment);
  frozen.bytes = frozen.shard_bytes * ranks;
  return frozen;
}

// Joined tensors are one matrix.
std::int64_t LargestMatrix(const std::vector<UnitSpec>& units) {
  std::int64_t largest = 0;
  for (const UnitSpec& unit : units) {
    std::int64_t joined = 0;
    for (const UnitTensor& tensor : unit.tensors) {
      if (!IsBlockLinear(tensor)) continue;
      joined = (tensor.joined ? joined : 0) + ElementCount(tensor.shape);
      largest = std::max(largest, joined);
    }
  }
  return largest;
}

Status CheckTargets(const AdapterPlan& adapters, const std::vector<UnitSpec>& units) {
  for (const std::string& target : adapters.target_modules) {
    bool found = target == "all-linear";
    for (const UnitSpec& unit : units)
      for (const UnitTensor& tensor : unit.tensors)
        found = found || (IsBlockLinear(tensor) && ModuleOf(tensor.name) == target);
    if (!found) {
      return InvalidArgument("train.lora.target_modules: the model has no linear layer " + target +
                             " in its blocks");
    }
  }
  return OkStatus();
}

}  // namespace

std::int64_t PlanJob::row_length() const {
  return RoundUp(train.data.max_seq_len, kLengthMultiple);
}

Result<PlanLayout> LayOutPlan(const PlanJob& job) {
  const int per_node = job.resources.ranks_per_node;
  MUSTER_ASSIGN_OR_RETURN(const MeshShape mesh,
                          ShapeOf(job.train.fsdp.strategy, job.world_size(), per_node));
  const std::vector<UnitSpec> units = LlamaUnits(job.model, job.train.fsdp.blocks_per_unit);
  std::vector<UnitSpec> trained = units;
  if (job.adapters) {
    MUSTER_RETURN_IF_ERROR(CheckTargets(*job.adapters, units));
    for (UnitSpec& unit : trained) unit = AdapterUnit(*job.adapters, unit);
  }
  PlanLayout layout{.mesh = mesh,
                    .shard_nodes = (mesh.shard_size + per_node - 1) / per_node,
                    .precision = ResolvePrecision(job.train.fsdp, job.train.optimizer),
                    .trained = FlatLayout(trained, mesh.shard_size),
                    .frozen = {}};
  if (!job.adapters) return layout;
  layout.adapter_parameters = layout.trained.parameter_count();
  for (const UnitSpec& unit : units) layout.frozen.push_back(Freeze(job, unit, layout));
  if (job.adapters->frozen != FrozenType::kCompute) layout.largest_matrix = LargestMatrix(units);
  return layout;
}

}  // namespace muster
