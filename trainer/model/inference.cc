#include "trainer/model/inference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/formats/safetensors.h"
#include "trainer/model/llama_units.h"
#include "trainer/model/weight_check.h"

namespace muster {
namespace {

Result<at::Tensor> ReadTensor(const SafetensorsModel& model, const UnitTensor& spec,
                              at::ScalarType type) {
  at::Tensor values = at::empty(spec.shape, at::kFloat);
  MUSTER_RETURN_IF_ERROR(
      model.ReadFloats(spec.name, 0, values.numel(), values.mutable_data_ptr<float>()));
  return values.to(type);
}

BlockWeights JoinBlock(const std::vector<at::Tensor>& tensors) {
  return {.input_norm = tensors[kInputNorm],
          .qkv = at::cat({tensors[kQuery], tensors[kKey], tensors[kValue]}),
          .output = tensors[kAttentionOutput],
          .post_norm = tensors[kPostNorm],
          .gate_up = at::cat({tensors[kGate], tensors[kUp]}),
          .down = tensors[kDown]};
}

}  // namespace

InferenceModel::InferenceModel(ModelConfig config) : config_(std::move(config)), rotary_(config_) {}

Result<InferenceModel> InferenceModel::Load(const std::string& dir, at::ScalarType type) {
  MUSTER_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(dir));
  MUSTER_ASSIGN_OR_RETURN(const SafetensorsModel file, SafetensorsModel::Open(dir));
  MUSTER_RETURN_IF_ERROR(CheckModelTensors(config, file));
  const at::NoGradGuard no_grad;
  InferenceModel model(std::move(config));
  const std::vector<UnitSpec> units = LlamaUnits(model.config_);
  for (std::size_t u = 0; u < units.size(); ++u) {
    std::vector<at::Tensor> tensors;
    for (const UnitTensor& spec : units[u].tensors) {
      MUSTER_ASSIGN_OR_RETURN(at::Tensor tensor, ReadTensor(file, spec, type));
      tensors.push_back(std::move(tensor));
    }
    if (u == 0) {
      model.embedding_ = tensors[0];
    } else if (u + 1 < units.size()) {
      model.blocks_.push_back(JoinBlock(tensors));
    } else {
      model.final_norm_ = tensors[0];
      model.head_ = tensors.size() > 1 ? tensors[1] : model.embedding_;
    }
  }
  return model;
}

at::Tensor InferenceModel::Hidden(const at::Tensor& ids) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK(!config_.sliding_window || ids.size(1) <= *config_.sliding_window,
              "the model looks back at ", config_.sliding_window.value_or(0),
              " positions only; this version handles no longer rows than that");
  rotary_.Ensure(ids.size(1));
  at::Tensor hidden = EmbedTokens(embedding_, ids);
  for (const BlockWeights& block : blocks_) {
    hidden = BlockForward(config_, rotary_, hidden, block);
  }
  return RmsNorm(hidden, final_norm_, config_.rms_norm_eps);
}

at::Tensor InferenceModel::Logits(const at::Tensor& ids) {
  return at::linear(Hidden(ids), head_).to(at::kFloat);
}

}  // namespace muster
