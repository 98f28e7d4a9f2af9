// SublayerNorm: the norms of one half of a block (attention or feed-forward) and its residual,
// before the half, after it, or on both sides.
//
// Before: y = x + m f(norm(x)), m the residual multiplier; after: y = x + norm(f(x)); both: y = x +
// norm(f(norm(x))). With x = sum + delta of the residual stream:
//
//   Enter        what f reads: norm(x), or x itself
//   Leave        what is added to x: m times f's output, or its norm
//   Returned     backward: the gradient of f's output, from that of y
//   Entered      backward: adds to the gradient of y, which becomes that of x, what came back
//   through f's input
//
// N tokens, H hidden size; all tensors [N, H] of the compute type unless said otherwise. The
// trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/core/model_config.h"
#include "trainer/model/residual_stream.h"
#include "trainer/ops/device_ops.h"

namespace muster {

// What backward reads of one half's norm.
struct NormActivations {
  at::Tensor scale;         // before: [N] W
  at::Tensor normed;        // before: norm(x); undefined where it is computed again
  at::Tensor output;        // after: f(x)
  at::Tensor output_scale;  // after: [N] W
};

class SublayerNorm {
 public:
  // `ops` outlives the object.
  SublayerNorm(const ModelConfig& config, DeviceOps& ops)
      : ops_(ops),
        eps_(config.rms_norm_eps),
        multiplier_(config.residual_multiplier),
        zero_centered_(config.zero_centered_norms),
        before_(config.norm_placement != NormPlacement::kAfter),
        after_(config.norm_placement != NormPlacement::kBefore) {}

  // `weight` is that of the norm before. `sum` becomes x. `scratch`: for norm(x) where it is not
  // kept.
  const at::Tensor& Enter(const ResidualStream& in, const at::Tensor& weight, NormActivations& kept,
                          at::Tensor& sum, at::Tensor& scratch) const;
  // Where f is to write its output.
  at::Tensor& OutputPlace(NormActivations& kept, at::Tensor& delta) const {
    return after_ ? kept.output : delta;
  }
  // f has written it: `delta` becomes what is added to x. `weight` is that of the norm after, here
  // and in Returned.
  void Leave(const at::Tensor& weight, NormActivations& kept, at::Tensor& delta) const;

  // `scratch`: for the gradient of f's output where it is not that of y.
  at::Tensor& Returned(const NormActivations& kept, const at::Tensor& weight,
                       const GradientTarget& weight_gradient, at::Tensor& gradient,
                       at::Tensor& scratch) const;
  // What f read, once more; x and `scratch` as in Enter.
  const at::Tensor& InputAgain(const NormActivations& kept, const at::Tensor& x,
                               const at::Tensor& weight, at::Tensor& scratch) const;
  void Entered(const at::Tensor& input_gradient, const NormActivations& kept, const at::Tensor& x,
               const at::Tensor& weight, const GradientTarget& weight_gradient,
               at::Tensor& gradient) const;

 private:
  DeviceOps& ops_;
  const double eps_;
  const double multiplier_;
  const bool zero_centered_;
  const bool before_, after_;
};

}  // namespace muster
