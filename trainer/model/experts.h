// Experts: the feed-forward layers of a mixture, forward and backward by hand.
//
// The rows that a router has sorted by expert are gathered once; then each expert is one product
// over its own rows, which lie together, for each matrix; on a CPU threads take experts of their
// own where there are many of about equal size. A row's weight is on the activation, and on the
// bias of the second matrix where there is one. The sums over a token's experts are in the order of
// its choices, so bits depend on the routing and the number of threads alone.
//
// N tokens, H hidden size, E experts, K of them for each token, S = N * K rows, I inner size of an
// expert. The trainer's thread. Shape errors are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "trainer/core/model_config.h"
#include "trainer/model/block_tensors.h"
#include "trainer/model/expert_adapters.h"
#include "trainer/model/linear.h"
#include "trainer/model/router.h"
#include "trainer/ops/device_ops.h"

namespace muster {

// Where a block's experts compute. `row_gradients` is read by the router afterwards.
struct ExpertScratch {
  at::Tensor rows;            // [S, H]
  at::Tensor gated;           // [S, I]
  at::Tensor gated_gradient;  // [S, I]
  at::Tensor row_gradients;   // [S] W
  ExpertAdapterScratch adapters;
};

ExpertScratch CutExpertScratch(const ModelConfig& config, const BlockLora& lora,
                               BumpAllocator& allocator, std::int64_t rows, at::ScalarType type);
// Gate and up of all rows, what forward keeps for backward.
at::Tensor CutExpertGateUp(const ModelConfig& config, BumpAllocator& allocator, std::int64_t rows,
                           at::ScalarType type);

class Experts {
 public:
  // `ops` outlives the object.
  Experts(const ModelConfig& config, DeviceOps& ops, const BlockLora& lora)
      : clamped_(config.experts ? config.experts->clamped : std::nullopt),
        ops_(ops),
        lora_(lora),
        weight_gradient_(ops),
        adapters_(ops),
        matrices_(ops) {}

  // gate_up [S, 2 * I] of x [N, H], before the activation.
  void GateUp(const at::Tensor& x, const BlockWeights& weights, const Routing& routing,
              ExpertScratch& scratch, at::Tensor& gate_up);
  // y [N, H] of gate and up.
  void Output(const BlockWeights& weights, const Routing& routing, const at::Tensor& gate_up,
              ExpertScratch& scratch, at::Tensor& y);
  // gate_up becomes its own gradient; x_gradient [N, H] and row_gradients are written. Gradients
  // whose target has no tensor are not computed.
  void Backward(const at::Tensor& x, const at::Tensor& y_gradient, const BlockWeights& weights,
                const BlockGradients& gradients, const Routing& routing, ExpertScratch& scratch,
                at::Tensor& gate_up, at::Tensor& x_gradient);

  // What it takes to read packed matrices.
  std::int64_t bytes() const { return matrices_.bytes(); }

 private:
  // gated of gate and up, which become their own gradients backward.
  void Activate(const Routing& routing, const at::Tensor& gate_up, at::Tensor& gated);
  void ActivateBackward(const Routing& routing, ExpertScratch& scratch, at::Tensor& gate_up);
  // The gradients of each expert's bias [E * out], of its rows [S, out] times `weights` [S] W, or
  // as they are where that is undefined.
  void BiasGradients(const Routing& routing, const at::Tensor& rows, const at::Tensor& weights,
                     const GradientTarget& target);

  const std::optional<ClampedSwiGluForm> clamped_;
  DeviceOps& ops_;
  const BlockLora lora_;
  LinearWeightGradient weight_gradient_;
  ExpertAdapters adapters_;
  MatrixReader matrices_;
};

}  // namespace muster
