#include "trainer/model/families/units.h"

#include <algorithm>

#include "trainer/model/families/family.h"

namespace muster {
namespace {

// The tensors of block `layer`, as block `block` of its unit.
std::vector<UnitTensor> BlockTensorsOf(const ModelConfig& config, std::int64_t layer, int block) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t query = config.num_attention_heads * config.head_dim;
  const std::int64_t key = config.num_key_value_heads * config.head_dim;
  const std::int64_t inner = config.intermediate_size;
  const BlockNames& names = FamilyOf(config).names;
  std::vector<UnitTensor> tensors;
  const auto add = [&](const char* name, std::vector<std::int64_t> shape, TensorRole role) {
    const bool joined = !tensors.empty() && tensors.back().role == role;
    tensors.push_back({prefix + name, std::move(shape), joined, role, block});
  };
  add(names.attention_norm, {hidden}, TensorRole::kAttentionNorm);
  add("self_attn.q_proj.weight", {query, hidden}, TensorRole::kQkv);
  add("self_attn.k_proj.weight", {key, hidden}, TensorRole::kQkv);
  add("self_attn.v_proj.weight", {key, hidden}, TensorRole::kQkv);
  if (config.qkv_bias) {
    add("self_attn.q_proj.bias", {query}, TensorRole::kQkvBias);
    add("self_attn.k_proj.bias", {key}, TensorRole::kQkvBias);
    add("self_attn.v_proj.bias", {key}, TensorRole::kQkvBias);
  }
  if (config.qk_norms != QkNorms::kNone) {
    const bool per_head = config.qk_norms == QkNorms::kPerHead;
    add("self_attn.q_norm.weight", {per_head ? config.head_dim : query}, TensorRole::kQueryNorm);
    add("self_attn.k_norm.weight", {per_head ? config.head_dim : key}, TensorRole::kKeyNorm);
  }
  add("self_attn.o_proj.weight", {hidden, query}, TensorRole::kAttentionOutput);
  add(names.feed_forward_norm, {hidden}, TensorRole::kFeedForwardNorm);
  add("mlp.gate_proj.weight", {inner, hidden}, TensorRole::kGateUp);
  add("mlp.up_proj.weight", {inner, hidden}, TensorRole::kGateUp);
  add("mlp.down_proj.weight", {hidden, inner}, TensorRole::kDown);
  return tensors;
}

// Blocks first .. end - 1.
UnitSpec BlocksUnit(const ModelConfig& config, std::int64_t first, std::int64_t end) {
  UnitSpec unit{.name = "block." + std::to_string(first)};
  if (end - first > 1) {
    unit.name = "blocks." + std::to_string(first) + "-" + std::to_string(end - 1);
  }
  for (std::int64_t layer = first; layer < end; ++layer) {
    for (UnitTensor& tensor : BlockTensorsOf(config, layer, static_cast<int>(layer - first))) {
      unit.tensors.push_back(std::move(tensor));
    }
  }
  return unit;
}

}  // namespace

std::vector<UnitSpec> ModelUnits(const ModelConfig& config, int blocks_per_unit) {
  const std::vector<std::int64_t> vocabulary = {config.vocab_size, config.hidden_size};
  std::vector<UnitSpec> units;
  units.push_back({"embed",
                   {{.name = "model.embed_tokens.weight",
                     .shape = vocabulary,
                     .role = TensorRole::kEmbedding}}});
  for (std::int64_t first = 0; first < config.num_hidden_layers; first += blocks_per_unit) {
    units.push_back(
        BlocksUnit(config, first, std::min(first + blocks_per_unit, config.num_hidden_layers)));
  }
  UnitSpec head{"head",
                {{.name = "model.norm.weight",
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
