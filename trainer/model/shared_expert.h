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
};

struct SharedExpertScratch {
  at::Tensor output;            // [N, H]; not together with input_gradient
  at::Tensor input_gradient;    // [N, H]
  at::Tensor gated;             // [N, I]
  at::Tensor gated_gradient;    // [N, I]
  at::Tensor logits;            // [N, 1]
  at::Tensor weight_gradients;  // [N] W
};

SharedExpertActivations CutSharedExpertActivations(const ExpertsConfig& config,
                                                   BumpAllocator& allocator, std::int64_t tokens,
                                                   at::ScalarType type);
SharedExpertScratch CutSharedExpertScratch(const ModelConfig& config, BumpAllocator& allocator,
                                           std::int64_t tokens, at::ScalarType type);

class SharedExpert {
 public:
  // `ops` and `layers` outlive the object.
  SharedExpert(DeviceOps& ops, LinearOps& layers) : ops_(ops), layers_(layers) {}
  SharedExpert(const SharedExpert&) = delete;
  SharedExpert& operator=(const SharedExpert&) = delete;

  // What is kept of x [N, H].
  void Enter(const at::Tensor& x, const BlockWeights& weights, SharedExpertScratch& scratch,
             SharedExpertActivations& kept);
  // scratch.output of what is kept.
  void Output(const BlockWeights& weights, const SharedExpertActivations& kept,
              SharedExpertScratch& scratch);
  // Adds to x_gradient [N, H]. Gradients whose target has no tensor are not computed.
  void Backward(const at::Tensor& x, const at::Tensor& y_gradient, const BlockWeights& weights,
                const BlockGradients& gradients, SharedExpertScratch& scratch,
                SharedExpertActivations& kept, at::Tensor& x_gradient);

 private:
  DeviceOps& ops_;
  LinearOps& layers_;
  // It has no adapters.
  const LoraForm no_form_;
  const LoraPass none_{no_form_};
  at::Tensor no_hidden_;
};

}  // namespace muster
