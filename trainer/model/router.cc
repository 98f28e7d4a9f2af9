#include "trainer/model/router.h"

#include <ATen/ATen.h>

#include <tuple>

#include "trainer/model/products.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

// Sorts the choices by expert; those of one expert stay in the order of tokens.
void SortByExpert(std::int64_t experts, Routing& routing) {
  const std::int64_t per_token = routing.experts.size(1);
  const at::Tensor choices = routing.experts.view({-1});
  const at::Tensor order = at::argsort(choices, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  routing.tokens.copy_(order.div(per_token, "floor"));
  at::Tensor places = routing.places.view({-1});
  places.scatter_(0, order, at::arange(choices.numel(), order.options()));
  at::index_select_out(routing.row_weights, routing.weights.view({-1}), 0, order);
  const at::Tensor counts = at::bincount(choices, {}, experts).cpu();
  routing.begins.assign(1, 0);
  for (std::int64_t e = 0; e < experts; ++e) {
    routing.begins.push_back(routing.begins.back() + counts.const_data_ptr<std::int64_t>()[e]);
  }
}

}  // namespace

LoadBalance::LoadBalance(const ModelConfig& config)
    : layers_(config.SparseLayers()),
      experts_(config.experts->count),
      has_loss_(config.experts->balance_coefficient > 0) {}

void LoadBalance::Begin(const at::Tensor& real) {
  real_ = real;
  added_ = 0;
  choices_ = at::zeros({layers_, experts_}, real.options().dtype(at::kDouble));
  if (has_loss_) probabilities_ = at::zeros({experts_}, choices_.options());
}

// Ones are added to whole numbers, which is exact in any order, and nothing waits for the device.
void LoadBalance::Add(const Routing& routing) {
  const at::Tensor real = real_.to(at::kDouble).unsqueeze(1);
  choices_.select(0, added_++)
      .scatter_add_(0, routing.experts.view({-1}), real.expand_as(routing.experts).reshape({-1}));
  if (has_loss_)
    probabilities_ += (routing.probabilities * real).sum(0, /*keepdim=*/false, at::kDouble);
}

at::Tensor LoadBalance::Tokens() const {
  return static_cast<double>(added_) * real_.sum(at::kDouble);
}

at::Tensor LoadBalance::Loss() const {
  const auto experts = static_cast<double>(experts_);
  return experts * (choices_.sum(0) * probabilities_).sum() / Tokens().square().clamp_min(1);
}

at::Tensor LoadBalance::Gradient(double factor) const {
  const auto experts = static_cast<double>(experts_);
  const at::Tensor shares = factor * experts * choices_.sum(0) / Tokens().square().clamp_min(1);
  return real_.unsqueeze(1) * shares.to(real_.scalar_type());
}

Router::Router(const ModelConfig& config, DeviceOps& ops)
    : config_(*config.experts), weight_gradient_(ops) {}

Routing CutRouting(const ExpertsConfig& config, BumpAllocator& allocator, std::int64_t tokens,
                   at::ScalarType type) {
  const at::ScalarType wide = WideType(type);
  const std::int64_t per_token = config.per_token;
  return {.probabilities = allocator.Cut({tokens, config.count}, wide),
          .weights = allocator.Cut({tokens, per_token}, wide),
          .experts = allocator.Cut({tokens, per_token}, at::kLong),
          .tokens = allocator.Cut({tokens * per_token}, at::kLong),
          .places = allocator.Cut({tokens, per_token}, at::kLong),
          .row_weights = allocator.Cut({tokens * per_token}, wide)};
}

void Router::Forward(const at::Tensor& x, const BlockWeights& weights, at::Tensor& logits,
                     Routing& routing) {
  LinearForward(x, weights.router, logits);
  if (weights.router_bias.defined()) logits.add_(weights.router_bias);
  at::softmax_out(routing.probabilities, logits, -1, routing.probabilities.scalar_type());
  if (config_.picks_by_logit) {
    routing.experts.copy_(std::get<1>(logits.topk(config_.per_token)));
    at::gather_out(routing.weights, routing.probabilities, 1, routing.experts);
  } else {
    at::topk_out(routing.weights, routing.experts, routing.probabilities, config_.per_token);
  }
  if (config_.normalizes_weights) routing.weights.div_(routing.weights.sum(-1, /*keepdim=*/true));
  SortByExpert(config_.count, routing);
}

void Router::Backward(const at::Tensor& x, const BlockWeights& weights, const Routing& routing,
                      const at::Tensor& row_gradients, const at::Tensor& balance,
                      at::Tensor& logits, const BlockGradients& gradients, at::Tensor& x_gradient) {
  const at::Tensor& probabilities = routing.probabilities;
  at::Tensor of_weights =
      row_gradients.index_select(0, routing.places.view({-1})).view(routing.weights.sizes());
  if (config_.normalizes_weights) {
    const at::Tensor mean = (of_weights * routing.weights).sum(-1, /*keepdim=*/true);
    const at::Tensor chosen = probabilities.gather(1, routing.experts).sum(-1, /*keepdim=*/true);
    of_weights = (of_weights - mean) / chosen;
  }
  at::Tensor gradient = balance.defined() ? balance.clone() : at::zeros_like(probabilities);
  gradient.scatter_add_(1, routing.experts, of_weights);
  const at::Tensor mean = (gradient * probabilities).sum(-1, /*keepdim=*/true);
  logits.copy_(probabilities * (gradient - mean));
  if (gradients.router.tensor.defined()) weight_gradient_.Write(logits, x, gradients.router);
  if (gradients.router_bias.tensor.defined())
    weight_gradient_.WriteBias(logits, gradients.router_bias);
  MultiplyAddInto(x_gradient, x_gradient, logits, weights.router);
}

}  // namespace muster
