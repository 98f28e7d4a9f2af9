// How a model's tensors lie in its files.
//
// Mostly as ModelTensors has them. Where all experts of a layer are one tensor in the files
// (gpt-oss: mlp.experts.gate_up_proj [experts, in, out]), a model has one for each expert, with its
// number behind the name (mlp.experts.gate_up_proj.3 [out, in]).
//
// Any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/core/model_config.h"
#include "trainer/formats/safetensors.h"
#include "trainer/formats/stored_tensor.h"

namespace muster {

// Opens the weights in `dir` with the names and shapes of ModelTensors. What SafetensorsModel::Open
// gives, and kInvalidArgument where they are none of this model (CheckModelTensors).
Result<SafetensorsModel> OpenModelWeights(const ModelConfig& config, const std::string& dir);

// The tensors of the files, in the order of ModelTensors and in the type that config.json names.
// `mxfp4`: the matrices of experts, which may be so (CheckMxfp4), in MXFP4.
std::vector<StoredTensor> StoredTensors(const ModelConfig& config, bool mxfp4 = false);

// Whether experts of this model can be written in MXFP4: kInvalidArgument says why not.
Status CheckMxfp4(const ModelConfig& config);

// Whether `model`, as SafetensorsModel::Open gives it, has all experts in MXFP4.
bool HoldsMxfp4(const ModelConfig& config, const SafetensorsModel& model);

}  // namespace muster
