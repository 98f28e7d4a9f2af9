#include "trainer/model/llama_units.h"

#include <algorithm>

namespace muster {
namespace {

UnitSpec BlockUnit(const ModelConfig& config, std::int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t query = config.num_attention_heads * config.head_dim;
  const std::int64_t key = config.num_key_value_heads * config.head_dim;
  const std::int64_t inner = config.intermediate_size;
  return {"block." + std::to_string(layer),
          {
              {prefix + "input_layernorm.weight", {hidden}},
              {prefix + "self_attn.q_proj.weight", {query, hidden}},
              {prefix + "self_attn.k_proj.weight", {key, hidden}, true},
              {prefix + "self_attn.v_proj.weight", {key, hidden}, true},
              {prefix + "self_attn.o_proj.weight", {hidden, query}},
              {prefix + "post_attention_layernorm.weight", {hidden}},
              {prefix + "mlp.gate_proj.weight", {inner, hidden}},
              {prefix + "mlp.up_proj.weight", {inner, hidden}, true},
              {prefix + "mlp.down_proj.weight", {hidden, inner}},
          }};
}

}  // namespace

std::vector<UnitSpec> LlamaUnits(const ModelConfig& config, int blocks_per_unit) {
  const std::vector<std::int64_t> vocabulary = {config.vocab_size, config.hidden_size};
  std::vector<UnitSpec> units;
  units.push_back({"embed", {{"model.embed_tokens.weight", vocabulary}}});
  for (std::int64_t first = 0; first < config.num_hidden_layers; first += blocks_per_unit) {
    const std::int64_t end = std::min(first + blocks_per_unit, config.num_hidden_layers);
    UnitSpec unit = BlockUnit(config, first);
    if (end - first > 1) {
      unit.name = "blocks." + std::to_string(first) + "-" + std::to_string(end - 1);
    }
    for (std::int64_t layer = first + 1; layer < end; ++layer) {
      const UnitSpec next = BlockUnit(config, layer);
      unit.tensors.insert(unit.tensors.end(), next.tensors.begin(), next.tensors.end());
    }
    units.push_back(std::move(unit));
  }
  UnitSpec head{"head", {{"model.norm.weight", {config.hidden_size}}}};
  if (!config.tie_word_embeddings) head.tensors.push_back({"lm_head.weight", vocabulary});
  units.push_back(std::move(head));
  return units;
}

std::vector<UnitTensor> LlamaTensors(const ModelConfig& config) {
  std::vector<UnitTensor> tensors;
  for (const UnitSpec& unit : LlamaUnits(config)) {
    tensors.insert(tensors.end(), unit.tensors.begin(), unit.tensors.end());
  }
  return tensors;
}

}  // namespace muster
