#include "trainer/model/experts.h"

#include <ATen/ATen.h>

#include "trainer/ops/scalar_type.h"
#include "trainer/ops/sum_rows.h"
#include "trainer/ops/weighted_swiglu.h"

namespace muster {
namespace {

// Calls f(expert, count, rows) for each expert and its number of rows; the latter cuts these out of
// all rows [S, ...].
template <typename Function>
void ForEachExpert(const Routing& routing, Function function) {
  const std::int64_t experts = ExpertsOf(routing);
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t begin = routing.begins[e], count = routing.begins[e + 1] - begin;
    const auto rows = [=](const at::Tensor& all) { return all.narrow(0, begin, count); };
    function(e, count, rows);
  }
}

// y = x weight^T, expert by expert.
void GroupedForward(const Routing& routing, const at::Tensor& x, const LinearWeights& weights,
                    const at::Tensor& y, MatrixReader& matrices) {
  ForEachExpert(routing, [&](std::int64_t expert, std::int64_t count, const auto& rows) {
    if (count == 0) return;
    at::Tensor out = rows(y);
    LinearForward(rows(x), matrices.Read(weights, x.scalar_type(), expert, ExpertsOf(routing)),
                  out);
  });
}

// x_gradient = y_gradient weight, expert by expert.
void GroupedInputGradient(const Routing& routing, const at::Tensor& y_gradient,
                          const LinearWeights& weights, const at::Tensor& x_gradient,
                          MatrixReader& matrices) {
  ForEachExpert(routing, [&](std::int64_t expert, std::int64_t count, const auto& rows) {
    if (count == 0) return;
    at::Tensor out = rows(x_gradient);
    LinearInputGradient(
        rows(y_gradient),
        matrices.Read(weights, y_gradient.scalar_type(), expert, ExpertsOf(routing)), out);
  });
}

void GroupedWeightGradient(const Routing& routing, const at::Tensor& y_gradient,
                           const at::Tensor& x, const GradientTarget& target,
                           LinearWeightGradient& products) {
  if (!target.tensor.defined()) return;
  const std::int64_t height = target.tensor.size(0) / ExpertsOf(routing);
  ForEachExpert(routing, [&](std::int64_t expert, std::int64_t count, const auto& rows) {
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
                               BumpAllocator& allocator, std::int64_t tokens, at::ScalarType type) {
  const std::int64_t rows = tokens * config.experts->per_token;
  const std::int64_t hidden = config.hidden_size, inner = config.experts->intermediate_size;
  return {.rows = allocator.Cut({rows, hidden}, type),
          .gated = allocator.Cut({rows, inner}, type),
          .gated_gradient = allocator.Cut({rows, inner}, type),
          .row_gradients = allocator.Cut({rows}, WideType(type)),
          .adapters = CutExpertAdapterScratch(config, lora, allocator, tokens, type)};
}

at::Tensor CutExpertGateUp(const ModelConfig& config, BumpAllocator& allocator, std::int64_t tokens,
                           at::ScalarType type) {
  const ExpertsConfig& experts = *config.experts;
  return allocator.Cut({tokens * experts.per_token, 2 * experts.intermediate_size}, type);
}

void Experts::GateUp(const at::Tensor& x, const BlockWeights& weights, const Routing& routing,
                     ExpertScratch& scratch, at::Tensor& gate_up) {
  at::index_select_out(scratch.rows, x, 0, routing.tokens);
  GroupedForward(routing, scratch.rows, weights.expert_gate_up, gate_up, matrices_);
  adapters_.Forward(routing, lora_.expert_gate_up, scratch.rows, weights.expert_gate_up,
                    scratch.adapters, gate_up);
}

void Experts::Output(const BlockWeights& weights, const Routing& routing, const at::Tensor& gate_up,
                     ExpertScratch& scratch, at::Tensor& y) {
  ops_.Run(op::WeightedSwiGlu{gate_up, routing.row_weights, scratch.gated});
  GroupedForward(routing, scratch.gated, weights.expert_down, scratch.rows, matrices_);
  adapters_.Forward(routing, lora_.expert_down, scratch.gated, weights.expert_down,
                    scratch.adapters, scratch.rows);
  ops_.Run(op::SumRows{scratch.rows, routing.places, y});
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
  ops_.Run(op::WeightedSwiGluBackward{gate_up, routing.row_weights, scratch.gated_gradient,
                                      scratch.gated, scratch.row_gradients});
  GroupedWeightGradient(routing, rows, scratch.gated, gradients.expert_down.weight,
                        weight_gradient_);
  adapters_.ParameterGradients(routing, lora_.expert_down, rows, scratch.gated, weights.expert_down,
                               scratch.adapters, gradients.expert_down);
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
