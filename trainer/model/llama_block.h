// One transformer block, forward and backward by hand.
//
// Products go straight into the buffers that the engine gathers into and reduces from; nothing is
// recorded and nothing is freed in between. trainer/model/llama.h is the same block as plain
// differentiable functions, the oracle of the tests and the code of inference.
//
// What forward keeps for backward depends on the level (ActivationCheckpointing): everything;
// without the norms' outputs and the gated activation, which cost one pass each to make again; or
// the block's input alone, from which backward runs forward once more.
//
// Buffers grow to the largest batch seen and stay. The trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/job_spec/job_spec.h"
#include "trainer/core/model_config.h"
#include "trainer/device/device_ops.h"
#include "trainer/model/llama.h"

namespace muster {

// The hidden states between blocks: sum + delta, added up by the next norm. delta may be undefined.
struct ResidualStream {
  at::Tensor sum;    // [N, H]
  at::Tensor delta;  // [N, H]
};

// Where a block's gradients go; shapes as in BlockWeights.
struct BlockGradients {
  GradientTarget input_norm, qkv, output, post_norm, gate_up, down;
};

// What forward keeps of one block. Undefined where the level does not keep it.
struct BlockActivations {
  at::Tensor input;       // [N, H]: sum + delta of the stream that came in
  at::Tensor input_scale;  // [N] W
  at::Tensor normed;      // [N, H]
  at::Tensor qkv;         // [N, joined width], rotated
  at::Tensor attended;    // [N, heads * head_dim]
  at::Tensor lse;         // [rows, heads, length] W
  at::Tensor middle;      // [N, H]: after attention
  at::Tensor middle_scale;  // [N] W
  at::Tensor middle_normed;  // [N, H]
  at::Tensor gate_up;     // [N, 2 * inner]
  at::Tensor gated;       // [N, inner]
};

// The blocks of one model on one device, with all memory that their activations need.
class LlamaBlocks {
 public:
  // `ops` outlives the object.
  LlamaBlocks(const ModelConfig& config, DeviceOps& ops, at::ScalarType compute_type,
              ActivationCheckpointing level);

  // A micro-batch begins: buffers fit it from here on. cos and sin [length, head_dim / 2] W.
  void Begin(const BatchShape& shape, const at::Tensor& cos, const at::Tensor& sin);

  // Of block `block` (counted from 0); the result's tensors are valid until the next Forward of any
  // block (sum until the block's Backward).
  ResidualStream Forward(int block, const ResidualStream& in, const BlockWeights& weights);
  // gradient: of the stream that left the block, becomes that of the stream that came in. Blocks go
  // backward in reverse order, each once per Begin.
  void Backward(int block, const BlockWeights& weights, const BlockGradients& gradients,
                at::Tensor& gradient);

  // Bytes held for activations and scratch.
  std::int64_t bytes() const;

 private:
  void KeepOf(int block);

  const ModelConfig config_;
  DeviceOps& ops_;
  const at::ScalarType type_;
  const ActivationCheckpointing level_;
  BatchShape shape_;
  at::Tensor cos_;
  at::Tensor sin_;
  std::vector<BlockActivations> kept_;  // by block
};

// The final norm, the head and the cross entropy, forward and backward, over chunks of the labelled
// positions: no [tokens, vocabulary] array exists for more than one chunk.
struct HeadTask {
  ResidualStream hidden;  // what the last block left
  at::Tensor norm;        // [H]
  at::Tensor head;        // [V, H]
  // Positions with a label, and their labels, equally long: int64 on the device.
  at::Tensor positions;
  at::Tensor labels;
  double eps = 0;
  double scale = 1;  // on every gradient; one over the labels of the window, times the loss scale
  GradientTarget norm_gradient;
  GradientTarget head_gradient;
};

class LlamaHead {
 public:
  LlamaHead(DeviceOps& ops, at::ScalarType compute_type);

  // loss[0] (fp64 on the device) += sum of the cross entropies, unscaled. Returns the gradient of
  // the stream [N, H]; zero where there is no label. Valid until the next call.
  at::Tensor Run(const HeadTask& task, at::Tensor& loss);

 private:
  DeviceOps& ops_;
  const at::ScalarType type_;
};

}  // namespace muster
