// Family: what sets one architecture of Hugging Face's transformers apart from the others.
//
// Each has a source here, and its function in the list of families.cc. What blocks
// can be made of (norms before or after, norms of heads, layers that do not rotate) is in
// ModelConfig; a family says which of it a config.json means, and how the tensors are called.
//
// Pure; any thread.
#pragma once

#include <vector>

#include "trainer/core/model_config.h"
#include "trainer/model/families/config_reader.h"

namespace muster {

// Below "model.layers.N.".
struct BlockNames {
  const char* attention_norm = "input_layernorm.weight";
  const char* feed_forward_norm = "post_attention_layernorm.weight";
  // Where the norms are behind their halves of a block, or on both sides.
  const char* attention_output_norm = "post_attention_layernorm.weight";
  const char* feed_forward_output_norm = "post_feedforward_layernorm.weight";
  const char* router = "mlp.gate.weight";
  const char* experts = "mlp.experts.";  // then the expert's number and one of the next three
  const char* expert_gate = ".gate_proj.weight";
  const char* expert_up = ".up_proj.weight";
  const char* expert_down = ".down_proj.weight";
};

struct Family {
  const char* model_type = "";
  // What a config.json that leaves a field out means. num_key_value_heads 0: as many as query
  // heads; head_dim 0: hidden_size / num_attention_heads.
  ModelConfig defaults;
  BlockNames names;
  bool partial_rotary = false;  // partial_rotary_factor counts
  // LongRoPE is the only scaling; other words for it are known, and what the file says of positions
  // before it lies beside the scaling or is this.
  std::int64_t longrope_positions = 0;
  // Query, key and value are one tensor, qkv_proj, and gate and up are gate_up_proj.
  bool fused_projections = false;
  // Files have one tensor [experts, in, out] for all experts of a layer, gate and up in one,
  // perhaps in MXFP4 (mxfp4.h), and biases [experts, out]. Here each expert has its own, with its
  // number behind the name (stored_model.h).
  bool stacked_experts = false;
  // To PEFT gate_proj, up_proj, down_proj and all-linear are what they were in transformers 4: its
  // experts, in other factors than those of target_parameters, and of all-linear its router.
  bool peft_renames_experts = false;
  bool reads_attention_bias = false;  // attention_bias may be true
  // Reads what only this family has, once all other fields are in `config`, and refuses what is not
  // implemented.
  void (*read)(ConfigReader& reader, ModelConfig& config) = nullptr;
};

const std::vector<Family>& Families();
// That of config.architecture, which is one of them.
const Family& FamilyOf(const ModelConfig& config);

// The fields of experts that all families with such have. `experts` holds the family's defaults,
// the coefficient that training has where the file asks for the loss among them.
void ReadExperts(ConfigReader& reader, ExpertsConfig& experts);

// The same of a Qwen, some of whose layers are dense; all are where it has no experts.
void ReadQwenExperts(ConfigReader& reader, ModelConfig& config, const ExpertsConfig& defaults);

// Which layers have no window: as layer_types says, else each `interval`-th; and the others'
// window, of which config.sliding_window holds the family's default.
void ReadWindows(ConfigReader& reader, ModelConfig& config, std::int64_t interval);

// Windows of some blocks only, as Qwen and SmolLM3 name them.
void RefuseWindowsOfSomeBlocks(ConfigReader& reader, ModelConfig& config);

}  // namespace muster
