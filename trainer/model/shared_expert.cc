#include "trainer/model/shared_expert.h"

#include <ATen/ATen.h>

#include "trainer/ops/scalar_type.h"
#include "trainer/ops/weighted_swiglu.h"

namespace muster {

SharedExpertActivations CutSharedExpertActivations(const ExpertsConfig& config,
                                                   const BlockLora& lora, BumpAllocator& allocator,
                                                   std::int64_t tokens, at::ScalarType type) {
  return {.gate_up = allocator.Cut({tokens, 2 * config.shared_intermediate_size}, type),
          .weights = allocator.Cut({tokens}, WideType(type)),
          .gate_up_lora = CutLoraHidden(lora.shared_gate_up, allocator, tokens, type),
          .gate_lora = CutLoraHidden(lora.shared_gate, allocator, tokens, type)};
}

SharedExpertScratch CutSharedExpertScratch(const ModelConfig& config, const BlockLora& lora,
                                           BumpAllocator& allocator, std::int64_t tokens,
                                           at::ScalarType type) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t inner = config.experts->shared_intermediate_size;
  SharedExpertScratch scratch;
  allocator.Overlap(
      [&] {
        scratch.output = allocator.Cut({tokens, hidden}, type);
      },
      [&] {
        scratch.input_gradient = allocator.Cut({tokens, hidden}, type);
      });
  scratch.gated = allocator.Cut({tokens, inner}, type);
  scratch.gated_gradient = allocator.Cut({tokens, inner}, type);
  scratch.logits = allocator.Cut({tokens, 1}, type);
  scratch.weight_gradients = allocator.Cut({tokens}, WideType(type));
  scratch.down_lora = CutLoraHidden(lora.shared_down, allocator, tokens, type);
  return scratch;
}

void SharedExpert::Enter(const at::Tensor& x, const BlockWeights& weights,
                         const SharedExpertLora& lora, SharedExpertScratch& scratch,
                         SharedExpertActivations& kept) {
  layers_.Forward(x, weights.gate_up, lora.gate_up, kept.gate_up_lora, kept.gate_up);
  layers_.Forward(x, weights.shared_expert_gate, lora.gate, kept.gate_lora, scratch.logits);
  kept.weights.copy_(scratch.logits.view({-1})).sigmoid_();
}

void SharedExpert::Output(const BlockWeights& weights, const SharedExpertLora& lora,
                          const SharedExpertActivations& kept, SharedExpertScratch& scratch) {
  ops_.Run(op::WeightedSwiGlu{kept.gate_up, kept.weights, scratch.gated});
  layers_.Forward(scratch.gated, weights.down, lora.down, scratch.down_lora, scratch.output);
}

void SharedExpert::Backward(const at::Tensor& x, const at::Tensor& y_gradient,
                            const BlockWeights& weights, const SharedExpertLora& lora,
                            const BlockGradients& gradients, SharedExpertScratch& scratch,
                            SharedExpertActivations& kept, at::Tensor& x_gradient) {
  layers_.InputGradient(y_gradient, weights.down, lora.down, scratch.gated_gradient);
  ops_.Run(op::WeightedSwiGluBackward{kept.gate_up, kept.weights, scratch.gated_gradient,
                                      scratch.gated, scratch.weight_gradients});
  layers_.AdapterForward(scratch.gated, weights.down, lora.down, scratch.down_lora);
  layers_.ParameterGradients(y_gradient, scratch.gated, scratch.down_lora, lora.down,
                             gradients.down);
  layers_.InputGradient(kept.gate_up, weights.gate_up, lora.gate_up, scratch.input_gradient);
  layers_.ParameterGradients(kept.gate_up, x, kept.gate_up_lora, lora.gate_up, gradients.gate_up);
  x_gradient.add_(scratch.input_gradient);
  // The sigmoid's gradient.
  scratch.weight_gradients.mul_(kept.weights * (1 - kept.weights));
  scratch.logits.copy_(scratch.weight_gradients.unsqueeze(1));
  layers_.InputGradient(scratch.logits, weights.shared_expert_gate, lora.gate,
                        scratch.input_gradient);
  layers_.ParameterGradients(scratch.logits, x, kept.gate_lora, lora.gate,
                             gradients.shared_expert_gate);
  x_gradient.add_(scratch.input_gradient);
}

}  // namespace muster
