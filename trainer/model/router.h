// Router: which experts each token of a sparse layer is given, and how much each of them counts.
//
// Decisions are those of transformers: the softmax over all experts, its largest values or those of
// the logits, ties among equal ones as ATen's topk on this device resolves them, and their weights,
// which are the softmax's values themselves or divided by their sum. N tokens, E experts, K of them
// for each token, S = N * K. Bits depend on the arguments and the number of threads alone. Shape
// errors are Torch exceptions. The trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trainer/core/model_config.h"
#include "trainer/model/arena.h"
#include "trainer/model/block_tensors.h"
#include "trainer/model/linear.h"
#include "trainer/ops/device_ops.h"

namespace muster {

// What one layer's router decided on a micro-batch. The tokens' copies lie in rows [S] in the order
// of the experts: those of expert e are rows begins[e] .. begins[e + 1] - 1, in order of tokens.
struct Routing {
  at::Tensor probabilities;          // [N, E] W
  at::Tensor weights;                // [N, K] W, of each token's experts, the most likely one first
  at::Tensor experts;                // [N, K] int64
  at::Tensor tokens;                 // [S] int64: of each row
  at::Tensor places;                 // [N, K] int64: the row of each choice
  at::Tensor row_weights;            // [S] W: `weights` in the order of the rows
  std::vector<std::int64_t> begins;  // [E + 1], on the host
};

inline std::int64_t ExpertsOf(const Routing& routing) {
  return static_cast<std::int64_t>(routing.begins.size()) - 1;
}

Routing CutRouting(const ExpertsConfig& config, BumpAllocator& allocator, std::int64_t tokens,
                   at::ScalarType type);

// How a micro-batch's choices are spread over the experts, and the load balancing loss (Switch
// Transformer, as transformers computes it): E times the sum over the experts of the share of
// choices that fell on them times their mean probability, both over all sparse layers and all
// tokens that are no padding.
class LoadBalance {
 public:
  // The config has experts.
  explicit LoadBalance(const ModelConfig& config);

  // A micro-batch begins. `real` [N] W on the device: 1 for each token, 0 for padding.
  void Begin(const at::Tensor& real);
  // The next sparse layer.
  void Add(const Routing& routing);
  // [sparse layers, E] fp64 on the device: how often each expert was chosen. Exact.
  const at::Tensor& choices() const { return choices_; }
  // What `choices` takes.
  std::int64_t bytes() const { return layers_ * experts_ * std::int64_t{sizeof(double)}; }
  // fp64 on the device, of the layers so far; 0 where there is no token. Only with a coefficient.
  at::Tensor Loss() const;
  // What backward adds to the gradient of each layer's probabilities, [N, E] W, for a loss that is
  // multiplied by `factor`.
  at::Tensor Gradient(double factor) const;

 private:
  // Layers so far times their tokens; fp64.
  at::Tensor Tokens() const;

  const std::int64_t layers_;
  const std::int64_t experts_;
  const bool has_loss_;
  std::int64_t added_ = 0;  // layers
  at::Tensor real_;
  at::Tensor choices_;        // [layers, E] fp64
  at::Tensor probabilities_;  // [E] fp64, of all layers
};

class Router {
 public:
  // `ops` outlives the object. The config has experts.
  Router(const ModelConfig& config, DeviceOps& ops);

  // x [N, H], weight [E, H] T, bias [E] or undefined; logits [N, E] T is scratch. Waits for the
  // device: the products' sizes are the host's to know.
  void Forward(const at::Tensor& x, const BlockWeights& weights, at::Tensor& logits,
               Routing& routing);

  // row_gradients [S] W: of row_weights. `balance` [N, E] W: of the probabilities from elsewhere,
  // or undefined. logits [N, E] T is scratch; x_gradient [N, H] grows.
  void Backward(const at::Tensor& x, const BlockWeights& weights, const Routing& routing,
                const at::Tensor& row_gradients, const at::Tensor& balance, at::Tensor& logits,
                const BlockGradients& gradients, at::Tensor& x_gradient);

 private:
  const ExpertsConfig config_;
  LinearWeightGradient weight_gradient_;
};

}  // namespace muster
