#include "trainer/model/experts.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "trainer/ops/clamped_swiglu.h"
#include "trainer/ops/host_threads.h"
#include "trainer/ops/scalar_type.h"
#include "trainer/ops/sum_rows.h"
#include "trainer/ops/weighted_swiglu.h"

namespace muster {
namespace {

// Calls f(expert, count, rows) for the experts [first, last) and their number of rows; the latter
// cuts these out of all rows [S, ...].
template <typename Function>
void ForExperts(const Routing& routing, std::int64_t first, std::int64_t last, Function function) {
  for (std::int64_t e = first; e < last; ++e) {
    const std::int64_t begin = routing.begins[e], count = routing.begins[e + 1] - begin;
    const auto rows = [=](const at::Tensor& all) { return all.narrow(0, begin, count); };
    function(e, count, rows);
  }
}
template <typename Function>
void ForEachExpert(const Routing& routing, Function function) {
  ForExperts(routing, 0, ExpertsOf(routing), function);
}

// Whether threads take experts of their own, rather than a part of each product, which is small and
// has an end that all wait for. Then they have about as many rows.
bool ThreadsTakeExperts(const Routing& routing, const at::Tensor& rows) {
  const std::int64_t threads = HostThreads(), all = routing.begins.back();
  if (threads == 1 || !rows.is_cpu()) return false;
  std::int64_t largest = 0;
  ForEachExpert(routing,
                [&](auto, std::int64_t count, auto) { largest = std::max(largest, count); });
  return 4 * threads * largest <= all;
}

// The same for products, which f makes from several threads at once where that is faster.
template <typename Function>
void ForEachProduct(const Routing& routing, const at::Tensor& rows, Function function) {
  if (!ThreadsTakeExperts(routing, rows)) return ForEachExpert(routing, function);
  const std::int64_t all = routing.begins.back(), experts = ExpertsOf(routing);
  const auto first_from = [&](std::int64_t row) {
    const auto begins = routing.begins.begin();
    return row == all ? experts : std::lower_bound(begins, begins + experts, row) - begins;
  };
  OverRanges(all, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::NoGradGuard no_grad;
    ForExperts(routing, first_from(begin), first_from(end), function);
  });
}

// y = x weight^T, expert by expert.
void GroupedForward(const Routing& routing, const at::Tensor& x, const LinearWeights& weights,
                    const at::Tensor& y, MatrixReader& matrices) {
  const auto product = [&](std::int64_t expert, std::int64_t count, const auto& rows) {
    if (count == 0) return;
    at::Tensor out = rows(y);
    LinearForward(rows(x), matrices.Read(weights, x.scalar_type(), expert, ExpertsOf(routing)),
                  out);
  };
  // A packed matrix is made whole in the place of the one before.
  weights.packed == nullptr ? ForEachProduct(routing, x, product) : ForEachExpert(routing, product);
}

// y += each row's expert's bias, times `weights` [S] W where these are defined.
void AddBiases(const Routing& routing, const at::Tensor& biases, const at::Tensor& weights,
               const at::Tensor& y) {
  if (!biases.defined()) return;
  const at::Tensor of_experts = biases.view({ExpertsOf(routing), -1});
  ForEachExpert(routing, [&](std::int64_t expert, std::int64_t count, const auto& rows) {
    if (count == 0) return;
    const at::Tensor bias = of_experts[expert];
    weights.defined() ? rows(y).add_(at::outer(rows(weights), bias.to(weights.scalar_type())))
                      : rows(y).add_(bias);
  });
}

// The weights' part of what an expert's second bias adds to a row: its product with the row's
// gradient.
void AddBiasProducts(const Routing& routing, const at::Tensor& biases,
                     const at::Tensor& row_gradients, const at::Tensor& weight_gradients) {
  if (!biases.defined()) return;
  const at::ScalarType wide = weight_gradients.scalar_type();
  const at::Tensor of_experts = biases.view({ExpertsOf(routing), -1}).to(wide);
  ForEachExpert(routing, [&](std::int64_t expert, std::int64_t count, const auto& rows) {
    if (count > 0)
      rows(weight_gradients).add_(at::mv(rows(row_gradients).to(wide), of_experts[expert]));
  });
}

// x_gradient = y_gradient weight, expert by expert.
void GroupedInputGradient(const Routing& routing, const at::Tensor& y_gradient,
                          const LinearWeights& weights, const at::Tensor& x_gradient,
                          MatrixReader& matrices) {
  const auto product = [&](std::int64_t expert, std::int64_t count, const auto& rows) {
    if (count == 0) return;
    at::Tensor out = rows(x_gradient);
    LinearInputGradient(
        rows(y_gradient),
        matrices.Read(weights, y_gradient.scalar_type(), expert, ExpertsOf(routing)), out);
  };
  weights.packed == nullptr ? ForEachProduct(routing, y_gradient, product)
                            : ForEachExpert(routing, product);
}

void GroupedWeightGradient(const Routing& routing, const at::Tensor& y_gradient,
                           const at::Tensor& x, const GradientTarget& target,
                           LinearWeightGradient& products) {
  if (!target.tensor.defined()) return;
  const std::int64_t height = target.tensor.size(0) / ExpertsOf(routing);
  ForEachProduct(routing, x, [&](std::int64_t expert, std::int64_t count, const auto& rows) {
    at::Tensor gradient = target.tensor.narrow(0, expert * height, height);
    if (count > 0) {
      products.Write(rows(y_gradient), rows(x), {gradient, target.add});
    } else if (!target.add) {
      gradient.zero_();
    }
  });
}

}  // namespace

ExpertScratch CutExpertScratch(const ModelConfig& config, const BlockLora& lora,
                               BumpAllocator& allocator, std::int64_t rows, at::ScalarType type) {
  const std::int64_t hidden = config.hidden_size, inner = config.experts->intermediate_size;
  return {.rows = allocator.Cut({rows, hidden}, type),
          .gated = allocator.Cut({rows, inner}, type),
          .gated_gradient = allocator.Cut({rows, inner}, type),
          .row_gradients = allocator.Cut({rows}, WideType(type)),
          .adapters = CutExpertAdapterScratch(config, lora, allocator, rows, type)};
}

at::Tensor CutExpertGateUp(const ModelConfig& config, BumpAllocator& allocator, std::int64_t rows,
                           at::ScalarType type) {
  return allocator.Cut({rows, 2 * config.experts->intermediate_size}, type);
}

void Experts::GateUp(const at::Tensor& x, const BlockWeights& weights, const Routing& routing,
                     ExpertScratch& scratch, at::Tensor& gate_up) {
  at::index_select_out(scratch.rows, x, 0, routing.tokens);
  GroupedForward(routing, scratch.rows, weights.expert_gate_up, gate_up, matrices_);
  AddBiases(routing, weights.expert_gate_up.bias, {}, gate_up);
  adapters_.Forward(routing, lora_.expert_gate_up, scratch.rows, weights.expert_gate_up,
                    scratch.adapters, gate_up);
}

void Experts::Output(const BlockWeights& weights, const Routing& routing, const at::Tensor& gate_up,
                     ExpertScratch& scratch, at::Tensor& y) {
  Activate(routing, gate_up, scratch.gated);
  GroupedForward(routing, scratch.gated, weights.expert_down, scratch.rows, matrices_);
  AddBiases(routing, weights.expert_down.bias, routing.row_weights, scratch.rows);
  adapters_.Forward(routing, lora_.expert_down, scratch.gated, weights.expert_down,
                    scratch.adapters, scratch.rows);
  ops_.Run(op::SumRows{scratch.rows, routing.places, y});
}

void Experts::Activate(const Routing& routing, const at::Tensor& gate_up, at::Tensor& gated) {
  if (clamped_) return ops_.Run(op::ClampedSwiGlu{gate_up, routing.row_weights, *clamped_, gated});
  ops_.Run(op::WeightedSwiGlu{gate_up, routing.row_weights, gated});
}

void Experts::ActivateBackward(const Routing& routing, ExpertScratch& scratch,
                               at::Tensor& gate_up) {
  if (clamped_) {
    return ops_.Run(op::ClampedSwiGluBackward{gate_up, routing.row_weights, scratch.gated_gradient,
                                              *clamped_, scratch.gated, scratch.row_gradients});
  }
  ops_.Run(op::WeightedSwiGluBackward{gate_up, routing.row_weights, scratch.gated_gradient,
                                      scratch.gated, scratch.row_gradients});
}

void Experts::BiasGradients(const Routing& routing, const at::Tensor& rows,
                            const at::Tensor& weights, const GradientTarget& target) {
  if (!target.tensor.defined()) return;
  const at::ScalarType wide = WideType(rows.scalar_type());
  const at::Tensor gradients =
      at::zeros({ExpertsOf(routing), rows.size(1)}, rows.options().dtype(wide));
  ForEachExpert(routing, [&](std::int64_t expert, std::int64_t count, const auto& of_expert) {
    if (count == 0) return;
    at::Tensor own = gradients[expert];
    const at::Tensor values = of_expert(rows);
    if (weights.defined()) {
      own.copy_(at::mv(values.to(wide).t(), of_expert(weights)));
    } else {
      at::sum_out(own, values, {0}, /*keepdim=*/false, wide);
    }
  });
  Deliver(ops_, gradients.view({-1}), target);
}

void Experts::Backward(const at::Tensor& x, const at::Tensor& y_gradient,
                       const BlockWeights& weights, const BlockGradients& gradients,
                       const Routing& routing, ExpertScratch& scratch, at::Tensor& gate_up,
                       at::Tensor& x_gradient) {
  at::Tensor& rows = scratch.rows;
  at::index_select_out(rows, y_gradient, 0, routing.tokens);
  GroupedInputGradient(routing, rows, weights.expert_down, scratch.gated_gradient, matrices_);
  adapters_.HiddenGradient(routing, lora_.expert_down, rows, weights.expert_down, scratch.adapters);
  adapters_.AddInputGradient(routing, lora_.expert_down, weights.expert_down, scratch.adapters,
                             scratch.gated_gradient);
  ActivateBackward(routing, scratch, gate_up);
  AddBiasProducts(routing, weights.expert_down.bias, rows, scratch.row_gradients);
  BiasGradients(routing, rows, routing.row_weights, gradients.expert_down.bias);
  GroupedWeightGradient(routing, rows, scratch.gated, gradients.expert_down.weight,
                        weight_gradient_);
  adapters_.ParameterGradients(routing, lora_.expert_down, rows, scratch.gated, weights.expert_down,
                               scratch.adapters, gradients.expert_down);
  BiasGradients(routing, gate_up, {}, gradients.expert_gate_up.bias);
  at::index_select_out(rows, x, 0, routing.tokens);
  GroupedWeightGradient(routing, gate_up, rows, gradients.expert_gate_up.weight, weight_gradient_);
  adapters_.HiddenGradient(routing, lora_.expert_gate_up, gate_up, weights.expert_gate_up,
                           scratch.adapters);
  adapters_.ParameterGradients(routing, lora_.expert_gate_up, gate_up, rows, weights.expert_gate_up,
                               scratch.adapters, gradients.expert_gate_up);
  GroupedInputGradient(routing, gate_up, weights.expert_gate_up, rows, matrices_);
  adapters_.AddInputGradient(routing, lora_.expert_gate_up, weights.expert_gate_up,
                             scratch.adapters, rows);
  ops_.Run(op::SumRows{rows, routing.places, x_gradient});
}

}  // namespace muster
