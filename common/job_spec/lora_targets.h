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

// Beside kLinearModules those of models that have query, key and value, or gate and up, as one
// matrix (Phi-3); in a block's order.
inline const std::vector<std::string> kAdapterModules = {"q_proj",   "k_proj",       "v_proj",
                                                         "qkv_proj", "o_proj",       "gate_proj",
                                                         "up_proj",  "gate_up_proj", "down_proj"};

// All modules of such a model: what all-linear, kLinearModules, is to it.
inline const std::vector<std::string> kFusedLinearModules = {"qkv_proj", "o_proj", "gate_up_proj",
                                                             "down_proj"};

inline constexpr char kExpertGateUp[] = "mlp.experts.gate_up_proj";  // gate and up, in one matrix
inline constexpr char kExpertDown[] = "mlp.experts.down_proj";
inline const std::vector<std::string> kExpertParameters = {kExpertGateUp, kExpertDown};

}  // namespace muster
