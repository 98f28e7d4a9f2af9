// SharedExpert: the feed-forward of a sparse block that every token goes through beside the experts
// that its router chose, forward and backward by hand (Qwen2-MoE).
//
// Its output is multiplied by sigmoid(x g), a number for each token. That is on the activation, as
// the router's weights are on that of experts.
//
// N tokens, H hidden size, I inner size. The trainer's thread. Shape errors are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trainer/core/model_config.h"
#include "trainer/model/arena.h"
#include "trainer/model/block_tensors.h"
#include "trainer/model/linear.h"
#include "trainer/model/lora_form.h"
#include "trainer/ops/device_ops.h"

namespace muster {

// What backward reads.
struct SharedExpertActivations {
  at::Tensor gate_up;  // [N, 2 * I]; backward turns it into its gradient
  at::Tensor weights;  // [N] W: of each token
  // [N, hidden width of the adapters]; undefined where there are none.
  at::Tensor gate_up_lora, gate_lora;
};

struct SharedExpertScratch {
  at::Tensor output;            // [N, H]; not together with input_gradient
  at::Tensor input_gradient;    // [N, H]
  at::Tensor gated;             // [N, I]
  at::Tensor gated_gradient;    // [N, I]
  at::Tensor logits;            // [N, 1]
  at::Tensor weight_gradients;  // [N] W
  at::Tensor down_lora;         // [N, hidden width of the adapters]; undefined without any
};

// Its adapters on a micro-batch: on gate and up, on down, and on the gate of its output.
struct SharedExpertLora {
  LoraPass gate_up, down, gate;
};

SharedExpertActivations CutSharedExpertActivations(const ExpertsConfig& config,
                                                   const BlockLora& lora, BumpAllocator& allocator,
                                                   std::int64_t tokens, at::ScalarType type);
SharedExpertScratch CutSharedExpertScratch(const ModelConfig& config, const BlockLora& lora,
                                           BumpAllocator& allocator, std::int64_t tokens,
                                           at::ScalarType type);

class SharedExpert {
 public:
  // `ops` and `layers` outlive the object.
  SharedExpert(DeviceOps& ops, LinearOps& layers) : ops_(ops), layers_(layers) {}
  SharedExpert(const SharedExpert&) = delete;
  SharedExpert& operator=(const SharedExpert&) = delete;

  // What is kept of x [N, H].
  void Enter(const at::Tensor& x, const BlockWeights& weights, const SharedExpertLora& lora,
             SharedExpertScratch& scratch, SharedExpertActivations& kept);
  // scratch.output of what is kept.
  void Output(const BlockWeights& weights, const SharedExpertLora& lora,
              const SharedExpertActivations& kept, SharedExpertScratch& scratch);
  // Adds to x_gradient [N, H]. Gradients whose target has no tensor are not computed.
  void Backward(const at::Tensor& x, const at::Tensor& y_gradient, const BlockWeights& weights,
                const SharedExpertLora& lora, const BlockGradients& gradients,
                SharedExpertScratch& scratch, SharedExpertActivations& kept,
                at::Tensor& x_gradient);

 private:
  DeviceOps& ops_;
  LinearOps& layers_;
};

}  // namespace muster
