#include "trainer/model/families/units.h"

#include <algorithm>

#include "trainer/model/families/family.h"

namespace muster {
namespace {

class BlockTensorList {
 public:
  BlockTensorList(const ModelConfig& config, std::int64_t layer, int block)
      : config_(config),
        family_(FamilyOf(config)),
        names_(family_.names),
        prefix_("model.layers." + std::to_string(layer) + "."),
        block_(block) {}

  void AddAttention() {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t query = config_.num_attention_heads * config_.head_dim;
    const std::int64_t key = config_.num_key_value_heads * config_.head_dim;
    const NormPlacement norms = config_.norm_placement;
    // Where there is no norm before, that behind has its place: checkpoints know it there.
    norms == NormPlacement::kAfter
        ? AddAttentionOutputNorm()
        : Add(names_.attention_norm, {hidden}, TensorRole::kAttentionNorm);
    if (family_.fused_projections) {
      Add("self_attn.qkv_proj.weight", {query + 2 * key, hidden}, TensorRole::kQkv);
    } else {
      Add("self_attn.q_proj.weight", {query, hidden}, TensorRole::kQkv);
      Add("self_attn.k_proj.weight", {key, hidden}, TensorRole::kQkv);
      Add("self_attn.v_proj.weight", {key, hidden}, TensorRole::kQkv);
    }
    if (config_.qkv_bias) {
      Add("self_attn.q_proj.bias", {query}, TensorRole::kQkvBias);
      Add("self_attn.k_proj.bias", {key}, TensorRole::kQkvBias);
      Add("self_attn.v_proj.bias", {key}, TensorRole::kQkvBias);
    }
    if (config_.qk_norms != QkNorms::kNone) {
      const bool per_head = config_.qk_norms == QkNorms::kPerHead;
      Add("self_attn.q_norm.weight", {per_head ? config_.head_dim : query}, TensorRole::kQueryNorm);
      Add("self_attn.k_norm.weight", {per_head ? config_.head_dim : key}, TensorRole::kKeyNorm);
    }
    if (config_.attention.sinks)
      Add("self_attn.sinks", {config_.num_attention_heads}, TensorRole::kSinks);
    Add("self_attn.o_proj.weight", {hidden, query}, TensorRole::kAttentionOutput);
    if (config_.output_bias)
      Add("self_attn.o_proj.bias", {hidden}, TensorRole::kAttentionOutputBias);
    if (norms == NormPlacement::kBoth) AddAttentionOutputNorm();
    norms == NormPlacement::kAfter
        ? AddFeedForwardOutputNorm()
        : Add(names_.feed_forward_norm, {hidden}, TensorRole::kFeedForwardNorm);
  }

  void AddFeedForward() {
    if (family_.fused_projections) {
      const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
      Add("mlp.gate_up_proj.weight", {2 * inner, hidden}, TensorRole::kGateUp);
      Add("mlp.down_proj.weight", {hidden, inner}, TensorRole::kDown);
    } else {
      AddMatrices("mlp.", config_.intermediate_size);
    }
    if (config_.norm_placement == NormPlacement::kBoth) AddFeedForwardOutputNorm();
  }

  void AddRouter() {
    Add(names_.router, {config_.experts->count, config_.hidden_size}, TensorRole::kRouter);
    if (config_.experts->biases)
      Add("mlp.router.bias", {config_.experts->count}, TensorRole::kRouterBias);
  }

  void AddSharedExpert() {
    if (config_.experts->shared_intermediate_size == 0) return;
    AddMatrices("mlp.shared_expert.", config_.experts->shared_intermediate_size);
    Add("mlp.shared_expert_gate.weight", {1, config_.hidden_size}, TensorRole::kSharedExpertGate);
  }

  void AddExperts() { family_.stacked_experts ? AddStackedExperts() : AddSingleExperts(); }

  std::vector<UnitTensor> Take() { return std::move(tensors_); }

 private:
  void AddMatrices(const std::string& module, std::int64_t inner) {
    Add(module + "gate_proj.weight", {inner, config_.hidden_size}, TensorRole::kGateUp);
    Add(module + "up_proj.weight", {inner, config_.hidden_size}, TensorRole::kGateUp);
    Add(module + "down_proj.weight", {config_.hidden_size, inner}, TensorRole::kDown);
  }
  void AddStackedExperts() {
    const std::int64_t hidden = config_.hidden_size, inner = config_.experts->intermediate_size;
    const auto add = [this](const char* name, const std::vector<std::int64_t>& shape,
                            TensorRole role) {
      for (std::int64_t e = 0; e < config_.experts->count; ++e)
        Add(names_.experts + std::string(name) + "." + std::to_string(e), shape, role);
    };
    add("gate_up_proj", {2 * inner, hidden}, TensorRole::kExpertGateUp);
    add("gate_up_proj_bias", {2 * inner}, TensorRole::kExpertGateUpBias);
    add("down_proj", {hidden, inner}, TensorRole::kExpertDown);
    add("down_proj_bias", {hidden}, TensorRole::kExpertDownBias);
  }
  void AddSingleExperts() {
    const std::int64_t hidden = config_.hidden_size, inner = config_.experts->intermediate_size;
    for (std::int64_t e = 0; e < config_.experts->count; ++e) {
      const std::string expert = names_.experts + std::to_string(e);
      Add(expert + names_.expert_gate, {inner, hidden}, TensorRole::kExpertGateUp);
      Add(expert + names_.expert_up, {inner, hidden}, TensorRole::kExpertGateUp);
    }
    for (std::int64_t e = 0; e < config_.experts->count; ++e) {
      Add(names_.experts + std::to_string(e) + names_.expert_down, {hidden, inner},
          TensorRole::kExpertDown);
    }
  }
  void AddAttentionOutputNorm() {
    Add(names_.attention_output_norm, {config_.hidden_size}, TensorRole::kAttentionOutputNorm);
  }
  void AddFeedForwardOutputNorm() {
    Add(names_.feed_forward_output_norm, {config_.hidden_size}, TensorRole::kFeedForwardOutputNorm);
  }
  void Add(const std::string& name, std::vector<std::int64_t> shape, TensorRole role) {
    const bool joined = !tensors_.empty() && tensors_.back().role == role;
    tensors_.push_back({prefix_ + name, std::move(shape), joined, role, block_});
  }

  const ModelConfig& config_;
  const Family& family_;
  const BlockNames& names_;
  const std::string prefix_;
  const int block_;
  std::vector<UnitTensor> tensors_;
};

// Blocks first .. end - 1, all dense.
UnitSpec BlocksUnit(const ModelConfig& config, std::int64_t first, std::int64_t end) {
  UnitSpec unit{
      .name = "block." + std::to_string(first),
      .blocks = {.first = static_cast<int>(first), .count = static_cast<int>(end - first)}};
  if (end - first > 1) {
    unit.name = "blocks." + std::to_string(first) + "-" + std::to_string(end - 1);
  }
  for (std::int64_t layer = first; layer < end; ++layer) {
    BlockTensorList list(config, layer, static_cast<int>(layer - first));
    list.AddAttention();
    list.AddFeedForward();
    for (UnitTensor& tensor : list.Take()) unit.tensors.push_back(std::move(tensor));
  }
  return unit;
}

// A block whose feed-forward is a mixture: its experts are a unit of their own.
void AddSparseBlock(const ModelConfig& config, std::int64_t layer, std::vector<UnitSpec>* units) {
  const std::string name = "block." + std::to_string(layer);
  const auto unit = [&](const std::string& called, BlockPart part, BlockTensorList& list) {
    const UnitBlocks blocks{.first = static_cast<int>(layer), .count = 1, .part = part};
    units->push_back({.name = called, .tensors = list.Take(), .blocks = blocks});
  };
  BlockTensorList rest(config, layer, 0), experts(config, layer, 0);
  rest.AddAttention();
  rest.AddRouter();
  rest.AddSharedExpert();
  experts.AddExperts();
  unit(name, BlockPart::kWithoutExperts, rest);
  unit(name + ".experts", BlockPart::kExperts, experts);
}

}  // namespace

std::vector<UnitSpec> ModelUnits(const ModelConfig& config, int blocks_per_unit) {
  const std::vector<std::int64_t> vocabulary = {config.vocab_size, config.hidden_size};
  std::vector<UnitSpec> units;
  units.push_back({.name = "embed",
                   .tensors = {{.name = "model.embed_tokens.weight",
                                .shape = vocabulary,
                                .role = TensorRole::kEmbedding}}});
  for (std::int64_t first = 0; first < config.num_hidden_layers; first += blocks_per_unit) {
    if (config.IsSparse(first)) {
      AddSparseBlock(config, first, &units);
      continue;
    }
    units.push_back(
        BlocksUnit(config, first, std::min(first + blocks_per_unit, config.num_hidden_layers)));
  }
  UnitSpec head{.name = "head",
                .tensors = {{.name = "model.norm.weight",
                             .shape = {config.hidden_size},
                             .role = TensorRole::kFinalNorm}}};
  if (!config.tie_word_embeddings) {
    head.tensors.push_back(
        {.name = "lm_head.weight", .shape = vocabulary, .role = TensorRole::kHead});
  }
  units.push_back(std::move(head));
  return units;
}

std::vector<UnitTensor> ModelTensors(const ModelConfig& config) {
  std::vector<UnitTensor> tensors;
  for (const UnitSpec& unit : ModelUnits(config)) {
    tensors.insert(tensors.end(), unit.tensors.begin(), unit.tensors.end());
  }
  return tensors;
}

}  // namespace muster
