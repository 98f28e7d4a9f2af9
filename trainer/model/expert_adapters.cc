#include "trainer/model/expert_adapters.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trainer/model/products.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

// Calls f(expert, begin, count) for each expert: its rows of all.
template <typename Function>
void EachExpert(const Routing& routing, Function function) {
  const std::int64_t experts = ExpertsOf(routing);
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t begin = routing.begins[e];
    function(e, begin, routing.begins[e + 1] - begin);
  }
}

// The scratch as [E, out, r].
at::Tensor ByExpert(const at::Tensor& scratch, std::int64_t experts, std::int64_t out,
                    std::int64_t rank) {
  return scratch.narrow(0, 0, experts * out * rank).view({experts, out, rank});
}

// A tensor in B's layout, [out, r * E], as a view [E, out, r].
at::Tensor ViewByExpert(const at::Tensor& b, std::int64_t experts, std::int64_t rank) {
  return b.view({b.size(0), rank, experts}).permute({2, 0, 1});
}

// B with each expert's matrix in one piece, which products read much faster.
at::Tensor CopyOfB(const LinearWeights& weights, std::int64_t experts, std::int64_t rank,
                   const ExpertAdapterScratch& scratch) {
  at::Tensor b = ByExpert(scratch.b, experts, weights.lora_b.size(0), rank);
  return b.copy_(ViewByExpert(weights.lora_b, experts, rank));
}

at::Tensor OfExpert(const at::Tensor& a, std::int64_t expert, std::int64_t rank) {
  return a.narrow(0, expert * rank, rank);
}

void HiddenValues(const Routing& routing, const LoraForm& form, const at::Tensor& x,
                  const at::Tensor& a, const at::Tensor& hidden) {
  EachExpert(routing, [&](std::int64_t e, std::int64_t begin, std::int64_t count) {
    if (count == 0) return;
    at::Tensor out = hidden.narrow(0, begin, count);
    LinearForward(x.narrow(0, begin, count), OfExpert(a, e, form.rank), out);
  });
}

}  // namespace

ExpertAdapterScratch CutExpertAdapterScratch(const ModelConfig& config, const BlockLora& lora,
                                             BumpAllocator& allocator, std::int64_t tokens,
                                             at::ScalarType type) {
  const bool gate_up = !lora.expert_gate_up.segments.empty();
  const bool down = !lora.expert_down.segments.empty();
  if (!gate_up && !down) return {};
  const std::int64_t rank = std::max(lora.expert_gate_up.rank, lora.expert_down.rank);
  const std::int64_t rows = tokens * config.experts->per_token;
  const std::int64_t out =
      std::max(gate_up ? 2 * config.experts->intermediate_size : 0, down ? config.hidden_size : 0);
  const std::int64_t elements = config.experts->count * out * rank;
  return {.hidden = allocator.Cut({rows, rank}, type),
          .hidden_gradient = allocator.Cut({rows, rank}, type),
          .b = allocator.Cut({elements}, type),
          .b_gradient = allocator.Cut({elements}, WideType(type))};
}

void ExpertAdapters::Forward(const Routing& routing, const LoraForm& form, const at::Tensor& x,
                             const LinearWeights& weights, ExpertAdapterScratch& scratch,
                             const at::Tensor& y) {
  if (form.segments.empty()) return;
  HiddenValues(routing, form, x, weights.lora_a, scratch.hidden);
  const at::Tensor b = CopyOfB(weights, ExpertsOf(routing), form.rank, scratch);
  EachExpert(routing, [&](std::int64_t e, std::int64_t begin, std::int64_t count) {
    if (count == 0) return;
    at::Tensor out = y.narrow(0, begin, count);
    MultiplyAddInto(out, out, scratch.hidden.narrow(0, begin, count), b.select(0, e).t(), 1,
                    form.scale);
  });
}

void ExpertAdapters::HiddenGradient(const Routing& routing, const LoraForm& form,
                                    const at::Tensor& y_gradient, const LinearWeights& weights,
                                    ExpertAdapterScratch& scratch) {
  if (form.segments.empty()) return;
  const at::Tensor b = CopyOfB(weights, ExpertsOf(routing), form.rank, scratch);
  EachExpert(routing, [&](std::int64_t e, std::int64_t begin, std::int64_t count) {
    if (count == 0) return;
    at::Tensor hidden = scratch.hidden_gradient.narrow(0, begin, count);
    MultiplyAddInto(hidden, hidden, y_gradient.narrow(0, begin, count), b.select(0, e), 0,
                    form.scale);
  });
}

void ExpertAdapters::AddInputGradient(const Routing& routing, const LoraForm& form,
                                      const LinearWeights& weights,
                                      const ExpertAdapterScratch& scratch,
                                      const at::Tensor& x_gradient) {
  if (form.segments.empty()) return;
  EachExpert(routing, [&](std::int64_t e, std::int64_t begin, std::int64_t count) {
    if (count == 0) return;
    at::Tensor out = x_gradient.narrow(0, begin, count);
    MultiplyAddInto(out, out, scratch.hidden_gradient.narrow(0, begin, count),
                    OfExpert(weights.lora_a, e, form.rank));
  });
}

void ExpertAdapters::ParameterGradients(const Routing& routing, const LoraForm& form,
                                        const at::Tensor& y_gradient, const at::Tensor& x,
                                        const LinearWeights& weights, ExpertAdapterScratch& scratch,
                                        const LinearGradients& gradients) {
  if (form.segments.empty()) return;
  HiddenValues(routing, form, x, weights.lora_a, scratch.hidden);
  const std::int64_t experts = ExpertsOf(routing);
  const at::Tensor b = ByExpert(scratch.b_gradient, experts, weights.lora_b.size(0), form.rank);
  EachExpert(routing, [&](std::int64_t e, std::int64_t begin, std::int64_t count) {
    at::Tensor of_a = OfExpert(gradients.lora_a.tensor, e, form.rank), of_b = b.select(0, e);
    if (count == 0) {
      if (!gradients.lora_a.add) of_a.zero_();
      of_b.zero_();
      return;
    }
    weight_gradient_.Write(scratch.hidden_gradient.narrow(0, begin, count),
                           x.narrow(0, begin, count), {of_a, gradients.lora_a.add});
    weight_gradient_.Write(y_gradient.narrow(0, begin, count),
                           scratch.hidden.narrow(0, begin, count), {of_b, false}, form.scale);
  });
  at::Tensor target = ViewByExpert(gradients.lora_b.tensor, experts, form.rank);
  gradients.lora_b.add ? target.add_(b) : target.copy_(b);
}

}  // namespace muster
