// What lora.target_modules may name: the matrices of a block that may have adapters, by their
// modules' names, and the parameters in which transformers keep the experts of a layer, one matrix
// for each, by whose names PEFT adapts them (target_parameters of its LoraConfig).
//
// Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/job_spec/job_spec.h"

namespace muster {

// In a block's order, with those of models that have query, key and value, or gate and up, as one
// matrix (Phi-3), and those of an expert that all tokens have (Qwen2-MoE). As in PEFT, a module is
// meant whose path ends so: gate_proj is also that of the shared expert.
inline const std::vector<std::string> kAdapterModules = {"q_proj",
                                                         "k_proj",
                                                         "v_proj",
                                                         "qkv_proj",
                                                         "o_proj",
                                                         "gate_proj",
                                                         "up_proj",
                                                         "gate_up_proj",
                                                         "down_proj",
                                                         "shared_expert.gate_proj",
                                                         "shared_expert.up_proj",
                                                         "shared_expert.down_proj",
                                                         "shared_expert_gate"};

inline constexpr char kExpertGateUp[] = "mlp.experts.gate_up_proj";  // gate and up, in one matrix
inline constexpr char kExpertDown[] = "mlp.experts.down_proj";
inline const std::vector<std::string> kExpertParameters = {kExpertGateUp, kExpertDown};

}  // namespace muster
