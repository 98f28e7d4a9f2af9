#include "trainer/model/adapters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "common/base/strings.h"
#include "common/job_spec/lora_targets.h"
#include "trainer/model/families/family.h"
#include "trainer/model/families/units.h"

namespace muster {
namespace {

// The roles of the adapters on a matrix.
struct AdapterRoles {
  TensorRole a;
  TensorRole b;
};
const std::map<TensorRole, AdapterRoles>& AdaptersOn() {
  static const std::map<TensorRole, AdapterRoles> roles = {
      {TensorRole::kQkv, {TensorRole::kQkvLoraA, TensorRole::kQkvLoraB}},
      {TensorRole::kAttentionOutput,
       {TensorRole::kAttentionOutputLoraA, TensorRole::kAttentionOutputLoraB}},
      {TensorRole::kGateUp, {TensorRole::kGateUpLoraA, TensorRole::kGateUpLoraB}},
      {TensorRole::kDown, {TensorRole::kDownLoraA, TensorRole::kDownLoraB}},
      {TensorRole::kSharedExpertGate,
       {TensorRole::kSharedExpertGateLoraA, TensorRole::kSharedExpertGateLoraB}},
      {TensorRole::kExpertGateUp, {TensorRole::kExpertGateUpLoraA, TensorRole::kExpertGateUpLoraB}},
      {TensorRole::kExpertDown, {TensorRole::kExpertDownLoraA, TensorRole::kExpertDownLoraB}},
  };
  return roles;
}

bool Contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// "model.layers.0.self_attn.q_proj.weight" -> "model.layers.0.self_attn.q_proj".
std::string ModulePath(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

std::string ModuleName(const std::string& tensor) {
  const std::string path = ModulePath(tensor);
  return path.substr(path.rfind('.') + 1);
}

// What lora.target_modules calls the matrices of all experts of a layer; null: they are none.
const char* ExpertParameter(TensorRole role) {
  switch (role) {
    case TensorRole::kExpertGateUp: return kExpertGateUp;
    case TensorRole::kExpertDown: return kExpertDown;
    default: return nullptr;
  }
}

// "model.layers.0.mlp.experts.3.up_proj.weight" -> "model.layers.0.".
std::string LayerPath(const std::string& tensor) {
  constexpr std::string_view kLayers = "model.layers.";
  return tensor.substr(0, tensor.find('.', kLayers.size()) + 1);
}

bool IsAllLinear(const LoraSpec& spec) { return spec.target_modules == kAllLinear; }

// Whether the path of a module ends with the name, as PEFT has it.
bool EndsWith(const std::string& path, const std::string& name) {
  return path == name || path.ends_with("." + name);
}

// `path` is a module's, "self_attn.q_proj", or that of a parameter of all experts.
bool IsTarget(const LoraSpec& spec, const std::string& path) {
  if (Contains(kExpertParameters, path)) return Contains(spec.target_modules, path);
  return IsAllLinear(spec) ||
         std::any_of(spec.target_modules.begin(), spec.target_modules.end(),
                     [&path](const std::string& name) { return EndsWith(path, name); });
}

// Whether the tensor is the matrix of a module, which experts are not.
bool IsModule(const UnitTensor& tensor) {
  return AdaptersOn().contains(tensor.role) && ExpertParameter(tensor.role) == nullptr;
}

bool HasAdapter(const UnitTensor& tensor, const LoraSpec& spec) {
  // One for the matrices of all experts, beside the first of them.
  if (const char* parameter = ExpertParameter(tensor.role); parameter != nullptr)
    return !tensor.joined && IsTarget(spec, parameter);
  return IsModule(tensor) && IsTarget(spec, ModulePath(tensor.name));
}

// Whether it belongs to routers and experts, which are frozen beside adapters.
bool IsOfMixture(TensorRole role) {
  switch (role) {
    case TensorRole::kRouter:
    case TensorRole::kRouterBias:
    case TensorRole::kSharedExpertGate:
    case TensorRole::kExpertGateUp:
    case TensorRole::kExpertGateUpBias:
    case TensorRole::kExpertDown:
    case TensorRole::kExpertDownBias: return true;
    default: return false;
  }
}

// Whether it is in attention, and no norm.
bool IsOfAttention(TensorRole role) {
  switch (role) {
    case TensorRole::kQkv:
    case TensorRole::kQkvBias:
    case TensorRole::kSinks:
    case TensorRole::kAttentionOutput:
    case TensorRole::kAttentionOutputBias: return true;
    default: return false;
  }
}

bool IsNamed(const std::vector<std::string>& ends, const UnitTensor& tensor) {
  const std::string path = ModulePath(tensor.name);
  return std::any_of(ends.begin(), ends.end(),
                     [&path](const std::string& end) { return path.ends_with(end); });
}

// Whether a tensor of the model is itself trained.
bool IsTrained(const UnitTensor& tensor, const LoraSpec& spec) {
  if (tensor.role != TensorRole::kQkvBias) return IsNamed(spec.modules_to_save, tensor);
  return spec.bias == LoraBias::kAll ||
         (spec.bias == LoraBias::kLoraOnly && IsTarget(spec, ModulePath(tensor.name)));
}

// Puts a tensor behind the others; of one matrix with the one before it where they have one role.
void Append(UnitTensor tensor, UnitSpec* unit) {
  tensor.joined = !unit->tensors.empty() && unit->tensors.back().role == tensor.role &&
                  unit->tensors.back().block == tensor.block;
  unit->tensors.push_back(std::move(tensor));
}

// The A of a matrix's adapters follow one another, and then its B.
class UnitSplitter {
 public:
  UnitSplitter(const UnitSpec& unit, const ModelConfig& config, const LoraSpec& spec)
      : config_(config),
        spec_(spec),
        trained_{.name = unit.name, .blocks = unit.blocks},
        frozen_{.name = unit.name, .blocks = unit.blocks} {
    for (const UnitTensor& tensor : unit.tensors) Add(tensor);
    Flush();
  }

  UnitSpec& trained() { return trained_; }
  UnitSpec& frozen() { return frozen_; }

 private:
  void Add(const UnitTensor& tensor) {
    if (!tensor.joined) Flush();
    Append(tensor, IsTrained(tensor, spec_) ? &trained_ : &frozen_);
    if (!HasAdapter(tensor, spec_)) return;
    const AdapterRoles roles = AdaptersOn().at(tensor.role);
    std::string path = ModulePath(tensor.name);
    std::int64_t rank = spec_.r, out = tensor.shape[0];
    if (ExpertParameter(tensor.role) != nullptr) {
      path = ExpertAdapterOf(tensor);
      rank *= config_.experts->count;
      out *= TensorsOfExpert(config_, tensor.role);
    }
    Append({path + ".lora_A.weight", {rank, tensor.shape[1]}, false, roles.a, tensor.block},
           &trained_);
    second_.push_back({path + ".lora_B.weight", {out, rank}, false, roles.b, tensor.block});
  }

  void Flush() {
    for (UnitTensor& b : second_) Append(std::move(b), &trained_);
    second_.clear();
  }

  const ModelConfig& config_;
  const LoraSpec& spec_;
  UnitSpec trained_;
  UnitSpec frozen_;
  std::vector<UnitTensor> second_;
};

// Experts are parameters to PEFT, all of a layer in one, and no modules. Routers stay frozen beside
// adapters: what they learned with the experts as they were is what the adapters build upon.
Status CheckExpertTargets(const ModelConfig& config, const LoraSpec& spec) {
  static constexpr char kKey[] = "lora.target_modules: ";
  const bool sparse = config.SparseLayers() > 0;
  for (const std::string& parameter : kExpertParameters) {
    if (!Contains(spec.target_modules, parameter)) continue;
    if (!sparse)
      return InvalidArgument(kKey + std::string("this model has no experts, and no ") + parameter +
                             "; leave it out");
    if (spec.dropout > 0)
      return Unimplemented("lora.dropout: adapters on experts (" + parameter +
                           ") have none, as in PEFT; set it to 0");
  }
  const bool renames = sparse && FamilyOf(config).peft_renames_experts;
  for (const char* module : {"all-linear", "gate_proj", "up_proj", "down_proj"}) {
    if (!renames || !Contains(spec.target_modules, module)) continue;
    return Unimplemented(kKey + std::string("PEFT takes gate_proj, up_proj and down_proj of a ") +
                         config.architecture +
                         " for its experts, and all-linear for its router as well; list q_proj, "
                         "k_proj, v_proj, o_proj, and for its experts " +
                         kExpertGateUp + " and " + kExpertDown);
  }
  for (const UnitTensor& tensor : ModelTensors(config)) {
    if (!IsOfMixture(tensor.role) || !IsNamed(spec.modules_to_save, tensor)) continue;
    return Unimplemented("lora.modules_to_save: " + ModulePath(tensor.name) +
                         " is a router or an expert of this model, which stay frozen beside "
                         "adapters; leave it out, and name " +
                         kExpertGateUp + " and " + kExpertDown +
                         " in lora.target_modules, or train without lora");
  }
  return OkStatus();
}

std::string ModulesOf(const std::vector<UnitTensor>& tensors) {
  std::vector<std::string> modules;
  for (const std::string& module : kAdapterModules) {
    const bool has = std::any_of(tensors.begin(), tensors.end(), [&](const UnitTensor& tensor) {
      return IsModule(tensor) && EndsWith(ModulePath(tensor.name), module);
    });
    if (has) modules.push_back(module);
  }
  return Join(modules);
}

// Every module that is named is one of the model's.
Status CheckTargets(const std::vector<UnitTensor>& tensors, const LoraSpec& spec) {
  if (IsAllLinear(spec)) return OkStatus();
  for (const std::string& module : spec.target_modules) {
    const bool known = std::any_of(tensors.begin(), tensors.end(), [&](const UnitTensor& tensor) {
      return IsModule(tensor) && EndsWith(ModulePath(tensor.name), module);
    });
    if (known || Contains(kExpertParameters, module)) continue;
    const bool sparse = std::any_of(tensors.begin(), tensors.end(), [](const UnitTensor& tensor) {
      return ExpertParameter(tensor.role) != nullptr;
    });
    return InvalidArgument(
        "lora.target_modules: this model has no " + module + "; it has " + ModulesOf(tensors) +
        (sparse ? ", " + Join(kExpertParameters) : ", and all-linear is all of them"));
  }
  return OkStatus();
}

Status CheckModulesToSave(const std::vector<UnitTensor>& tensors, const LoraSpec& spec) {
  static constexpr char kKey[] = "lora.modules_to_save: ";
  for (const std::string& module : spec.modules_to_save) {
    bool found = false;
    std::string known;
    for (const UnitTensor& tensor : tensors) {
      const bool is_linear = AdaptersOn().contains(tensor.role) || IsOfAttention(tensor.role);
      const bool named = IsNamed({module}, tensor);
      if (named && is_linear) {
        return InvalidArgument(kKey + module + " names " + ModulePath(tensor.name) +
                               ", of attention or feed-forward, which is not trained whole beside "
                               "adapters; leave it out");
      }
      found = found || named;
      const std::string name = ModuleName(tensor.name);
      const bool may = !is_linear && !IsOfMixture(tensor.role);
      if (may && known.find(name) == std::string::npos) {
        known += (known.empty() ? "" : ", ") + name;
      }
    }
    if (!found) {
      return InvalidArgument(kKey + std::string("this model has no ") + module + "; it may name " +
                             known);
    }
  }
  return OkStatus();
}

// PEFT wraps the experts once for each of their parameters, gate and up first: what is wrapped
// again is the base layer of what wraps it.
std::string ExpertAdapterName(const UnitTensor& tensor, const LoraSpec& spec) {
  const bool is_a = IsLoraA(tensor.role);
  const bool gate_up = tensor.role == TensorRole::kExpertGateUpLoraA ||
                       tensor.role == TensorRole::kExpertGateUpLoraB;
  const bool wrapped = gate_up && Contains(spec.target_modules, kExpertDown);
  return kPeftPrefix + LayerPath(tensor.name) + "mlp.experts." + (wrapped ? "base_layer." : "") +
         (is_a ? "lora_A.weight" : "lora_B.weight");
}

}  // namespace

Status CheckLora(const ModelConfig& config, const LoraSpec& spec) {
  if (spec.bias != LoraBias::kNone && config.output_bias) {
    return Unimplemented("lora.bias: of a " + config.architecture +
                         " biases stay frozen beside adapters; leave it at none");
  }
  if (config.tie_word_embeddings && Contains(spec.modules_to_save, "lm_head")) {
    return InvalidArgument(
        "lora.modules_to_save: the head of this model is its embedding; name embed_tokens");
  }
  MUSTER_RETURN_IF_ERROR(CheckExpertTargets(config, spec));
  const std::vector<UnitTensor> tensors = ModelTensors(config);
  MUSTER_RETURN_IF_ERROR(CheckTargets(tensors, spec));
  MUSTER_RETURN_IF_ERROR(CheckModulesToSave(tensors, spec));
  if (spec.bias == LoraBias::kLoraOnly && config.qkv_bias) {
    const auto adapted = [&](const char* path) { return IsTarget(spec, path); };
    const int count =
        adapted("self_attn.q_proj") + adapted("self_attn.k_proj") + adapted("self_attn.v_proj");
    if (count != 0 && count != 3) {
      return InvalidArgument(
          "lora.bias: lora_only needs all of q_proj, k_proj and v_proj in lora.target_modules, or "
          "none of them: their biases are trained together");
    }
  }
  return OkStatus();
}

double LoraScale(const LoraSpec& spec) {
  return spec.alpha / (spec.rslora ? std::sqrt(static_cast<double>(spec.r)) : spec.r);
}

BlockLora LoraOf(const ModelConfig& config, const LoraSpec& spec) {
  const std::int64_t query = config.num_attention_heads * config.head_dim;
  const std::int64_t key = config.num_key_value_heads * config.head_dim;
  const std::int64_t hidden = config.hidden_size;
  const bool fused = FamilyOf(config).fused_projections;
  const auto form = [&](std::vector<std::pair<std::string, std::int64_t>> parts) {
    LoraForm lora{.rank = spec.r, .scale = LoraScale(spec), .dropout = spec.dropout};
    std::int64_t row = 0;
    for (const auto& [path, rows] : parts) {
      if (IsTarget(spec, path)) lora.segments.push_back({row, rows});
      row += rows;
    }
    return lora;
  };
  const auto gate_up = [&](const std::string& module, std::int64_t inner) {
    return fused ? form({{module + "gate_up_proj", 2 * inner}})
                 : form({{module + "gate_proj", inner}, {module + "up_proj", inner}});
  };
  BlockLora lora{.qkv = fused ? form({{"self_attn.qkv_proj", query + 2 * key}})
                              : form({{"self_attn.q_proj", query},
                                      {"self_attn.k_proj", key},
                                      {"self_attn.v_proj", key}}),
                 .output = form({{"self_attn.o_proj", hidden}})};
  if (config.SparseLayers() < config.num_hidden_layers) {
    lora.gate_up = gate_up("mlp.", config.intermediate_size);
    lora.down = form({{"mlp.down_proj", hidden}});
  }
  if (config.SparseLayers() == 0) return lora;
  lora.expert_gate_up = form({{kExpertGateUp, 2 * config.experts->intermediate_size}});
  lora.expert_down = form({{kExpertDown, hidden}});
  if (const std::int64_t inner = config.experts->shared_intermediate_size; inner > 0) {
    lora.shared_gate_up = gate_up("mlp.shared_expert.", inner);
    lora.shared_down = form({{"mlp.shared_expert.down_proj", hidden}});
    lora.shared_gate = form({{"mlp.shared_expert_gate", 1}});
  }
  return lora;
}

SplitUnits SplitModel(const ModelConfig& config, int blocks_per_unit,
                      const std::optional<LoraSpec>& lora) {
  std::vector<UnitSpec> units = ModelUnits(config, blocks_per_unit);
  if (!lora) return {.trained = std::move(units), .frozen = {}};
  SplitUnits split;
  for (const UnitSpec& unit : units) {
    UnitSplitter splitter(unit, config, *lora);
    split.trained.push_back(std::move(splitter.trained()));
    split.frozen.push_back(std::move(splitter.frozen()));
  }
  return split;
}

std::string PeftName(const UnitTensor& tensor, const LoraSpec& spec) {
  if (IsExpertAdapter(tensor.role)) return ExpertAdapterName(tensor, spec);
  // An adapter's module stands around the layer that it adapts.
  const bool is_wrapped =
      tensor.role == TensorRole::kQkvBias && IsTarget(spec, ModulePath(tensor.name));
  if (!is_wrapped) return kPeftPrefix + tensor.name;
  return kPeftPrefix + ModulePath(tensor.name) + ".base_layer.bias";
}

int TensorsOfExpert(const ModelConfig& config, TensorRole matrix) {
  return matrix == TensorRole::kExpertGateUp && !FamilyOf(config).stacked_experts ? 2 : 1;
}

std::string ExpertAdapterOf(const UnitTensor& tensor) {
  const char* parameter = ExpertParameter(tensor.role);
  return parameter != nullptr ? LayerPath(tensor.name) + parameter : "";
}

bool IsExpertAdapter(TensorRole role) {
  const auto of = [role](TensorRole matrix) {
    const AdapterRoles& roles = AdaptersOn().at(matrix);
    return role == roles.a || role == roles.b;
  };
  return of(TensorRole::kExpertGateUp) || of(TensorRole::kExpertDown);
}

std::vector<std::string> AdaptedTargets(const std::vector<UnitTensor>& trained,
                                        const LoraSpec& spec) {
  if (!IsAllLinear(spec)) return spec.target_modules;
  std::vector<std::string> targets;
  for (const std::string& name : kAdapterModules) {
    if (name.find('.') != std::string::npos) continue;  // a part of another one
    if (std::any_of(trained.begin(), trained.end(), [&](const UnitTensor& tensor) {
          return tensor.name.ends_with("." + name + ".lora_A.weight");
        }))
      targets.push_back(name);
  }
  return targets;
}

bool IsLoraA(TensorRole role) {
  return std::any_of(AdaptersOn().begin(), AdaptersOn().end(),
                     [role](const auto& each) { return each.second.a == role; });
}

std::int64_t ActiveTrainedParameters(const ModelConfig& config, const FlatLayout& trained) {
  std::int64_t all = 0, of_experts = 0;
  for (const FlatUnit& unit : trained.units()) {
    for (const FlatTensor& tensor : unit.tensors)
      (IsExpertAdapter(tensor.spec.role) ? of_experts : all) += tensor.count;
  }
  if (of_experts == 0) return all;
  return all + of_experts / config.experts->count * config.experts->per_token;
}

bool IsAdapterTensor(const UnitTensor& tensor) {
  return std::any_of(AdaptersOn().begin(), AdaptersOn().end(), [&](const auto& each) {
    return each.second.a == tensor.role || each.second.b == tensor.role;
  });
}

}  // namespace muster
