// What lora.target_modules may name beside kLinearModules: the parameters in which transformers
// keep the experts of a layer, one matrix for each, and by whose names PEFT adapts them
// (target_parameters of its LoraConfig).
//
// Plain values; any thread.
#pragma once

#include <string>
#include <vector>

namespace muster {

inline constexpr char kExpertGateUp[] = "mlp.experts.gate_up_proj";  // gate and up, in one matrix
inline constexpr char kExpertDown[] = "mlp.experts.down_proj";
inline const std::vector<std::string> kExpertParameters = {kExpertGateUp, kExpertDown};

}  // namespace muster
