// Which tensors a job with adapters trains, and which it only reads (LoRA).
//
// Without adapters every tensor of the model is trained. With them the model's tensors are frozen,
// but for those that the job names, and each chosen matrix W [out, in] gets two small ones: A
// [r, in] and B [out, r], so that x goes to x W^T + scale * x A^T B^T. Names are the model's, with
// lora_A and lora_B in their modules.
//
// The experts of a layer are one matrix each, and their adapters are two tensors for all of them
// (expert_adapters.h): those of mlp.experts.gate_up_proj adapt gate and up in one.
//
// As in PEFT, target_modules are what the paths of modules end with, in whole names, and
// modules_to_save any ends of them: "norm" is every norm. kAllLinear is every module that may have
// adapters, whatever it is called; experts, which are no modules, are not among them.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/job_spec/job_spec.h"
#include "trainer/core/flat_layout.h"
#include "trainer/core/model_config.h"
#include "trainer/model/lora_form.h"

namespace muster {

// kInvalidArgument where the model has not what `spec` names, kUnimplemented for what of its
// experts and routers is not trained beside adapters, both with the way out.
Status CheckLora(const ModelConfig& config, const LoraSpec& spec);

// What an adapter's product is multiplied with: alpha / r, or alpha / sqrt(r) with rslora.
double LoraScale(const LoraSpec& spec);
BlockLora LoraOf(const ModelConfig& config, const LoraSpec& spec);

// The units of a model in two halves, equally many of each; a unit may have no tensor in one of
// them.
struct SplitUnits {
  std::vector<UnitSpec> trained;
  std::vector<UnitSpec> frozen;  // none at all where everything is trained
};
SplitUnits SplitModel(const ModelConfig& config, int blocks_per_unit,
                      const std::optional<LoraSpec>& lora);

// Elements that are trained and that a token is multiplied with: adapters on all experts of a layer
// count with the token's experts alone.
std::int64_t ActiveTrainedParameters(const ModelConfig& config, const FlatLayout& trained);

// The tensor's name in PEFT's files, which begins with kPeftPrefix.
inline constexpr char kPeftPrefix[] = "base_model.model.";
std::string PeftName(const UnitTensor& tensor, const LoraSpec& spec);

// What lora.target_modules names, in a block's order; of all-linear what has adapters among these
// tensors.
std::vector<std::string> AdaptedTargets(const std::vector<UnitTensor>& trained,
                                        const LoraSpec& spec);

// Whether the tensor is the A or B of an adapter, which no model's files hold.
bool IsAdapterTensor(const UnitTensor& tensor);
bool IsLoraA(TensorRole role);
// Whether it is that of all experts of a layer.
bool IsExpertAdapter(TensorRole role);
// How many tensors an expert's matrix consists of: gate and up are two, or one.
int TensorsOfExpert(const ModelConfig& config, TensorRole matrix);
// The path under which the adapter on a tensor of an expert is, before ".lora_A.weight"; "" for
// other tensors.
std::string ExpertAdapterOf(const UnitTensor& tensor);

}  // namespace muster
