#include "trainer/model/expert_adapters.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trainer/model/products.h"
#include "trainer/ops/cpu/grouped_factors.h"
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

// Both factors are seen as [E, r, width], where width is that of x for A, of y for B.
at::Tensor OfA(const at::Tensor& a, std::int64_t experts) {
  return a.view({experts, -1, a.size(1)});
}

// The scratch, [E, out, r] in memory.
at::Tensor OfScratch(const at::Tensor& scratch, std::int64_t experts, std::int64_t out,
                     std::int64_t rank) {
  return scratch.narrow(0, 0, experts * out * rank).view({experts, out, rank}).transpose(1, 2);
}

// B's layout, [out, r * E] or [out * r, E], as the scratch has it; ATen copies two dimensions much
// faster than three.
at::Tensor InOrderOfScratch(const at::Tensor& b, std::int64_t experts) {
  return b.view({-1, experts}).t();
}

std::int64_t OutOf(const at::Tensor& b, std::int64_t experts, std::int64_t rank) {
  return b.numel() / (experts * rank);
}

at::Tensor Flat(const at::Tensor& of_scratch) {
  return of_scratch.transpose(1, 2).view({of_scratch.size(0), -1});
}

// B with each expert's matrix in one piece, which products read much faster.
at::Tensor CopyOfB(const LinearWeights& weights, std::int64_t experts, std::int64_t rank,
                   const ExpertAdapterScratch& scratch) {
  const at::Tensor b = OfScratch(scratch.b, experts, OutOf(weights.lora_b, experts, rank), rank);
  Flat(b).copy_(InOrderOfScratch(weights.lora_b, experts));
  return b;
}

GroupedRows RowsOf(const Routing& routing, const at::Tensor& all, const at::Tensor& factors,
                   double scale) {
  return {.type = ElementTypeOf(all.scalar_type()),
          .begins = routing.begins,
          .rank = factors.size(1),
          .width = factors.size(2),
          .scale = scale};
}

FactorLayout LayoutOf(const at::Tensor& factors) {
  return {.group = factors.stride(0), .row = factors.stride(1), .column = factors.stride(2)};
}

// hidden [S, r] = scale * x factor^T
void HiddenValues(const Routing& routing, const at::Tensor& x, const at::Tensor& factors,
                  double scale, const at::Tensor& hidden) {
  if (x.is_cpu()) {
    GroupedHidden(RowsOf(routing, x, factors, scale), x.const_data_ptr(), factors.const_data_ptr(),
                  LayoutOf(factors), hidden.mutable_data_ptr());
    return;
  }
  EachExpert(routing, [&](std::int64_t e, std::int64_t begin, std::int64_t count) {
    if (count == 0) return;
    at::Tensor out = hidden.narrow(0, begin, count);
    MultiplyAddInto(out, out, x.narrow(0, begin, count), factors[e].t(), 0, scale);
  });
}

// y [S, width] += scale * hidden factor
void AddOutput(const Routing& routing, const at::Tensor& hidden, const at::Tensor& factors,
               double scale, const at::Tensor& y) {
  if (y.is_cpu()) {
    AddGroupedOutput(RowsOf(routing, y, factors, scale), hidden.const_data_ptr(),
                     factors.const_data_ptr(), LayoutOf(factors), y.mutable_data_ptr());
    return;
  }
  EachExpert(routing, [&](std::int64_t e, std::int64_t begin, std::int64_t count) {
    if (count == 0) return;
    at::Tensor out = y.narrow(0, begin, count);
    MultiplyAddInto(out, out, hidden.narrow(0, begin, count), factors[e], 1, scale);
  });
}

}  // namespace

ExpertAdapterScratch CutExpertAdapterScratch(const ModelConfig& config, const BlockLora& lora,
                                             BumpAllocator& allocator, std::int64_t rows,
                                             at::ScalarType type) {
  const bool gate_up = !lora.expert_gate_up.segments.empty();
  const bool down = !lora.expert_down.segments.empty();
  if (!gate_up && !down) return {};
  const std::int64_t rank = std::max(lora.expert_gate_up.rank, lora.expert_down.rank);
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
  const std::int64_t experts = ExpertsOf(routing);
  HiddenValues(routing, x, OfA(weights.lora_a, experts), 1, scratch.hidden);
  AddOutput(routing, scratch.hidden, CopyOfB(weights, experts, form.rank, scratch), form.scale, y);
}

void ExpertAdapters::HiddenGradient(const Routing& routing, const LoraForm& form,
                                    const at::Tensor& y_gradient, const LinearWeights& weights,
                                    ExpertAdapterScratch& scratch) {
  if (form.segments.empty()) return;
  HiddenValues(routing, y_gradient, CopyOfB(weights, ExpertsOf(routing), form.rank, scratch),
               form.scale, scratch.hidden_gradient);
}

void ExpertAdapters::AddInputGradient(const Routing& routing, const LoraForm& form,
                                      const LinearWeights& weights,
                                      const ExpertAdapterScratch& scratch,
                                      const at::Tensor& x_gradient) {
  if (form.segments.empty()) return;
  AddOutput(routing, scratch.hidden_gradient, OfA(weights.lora_a, ExpertsOf(routing)), 1,
            x_gradient);
}

void ExpertAdapters::ParameterGradients(const Routing& routing, const LoraForm& form,
                                        const at::Tensor& y_gradient, const at::Tensor& x,
                                        const LinearWeights& weights, ExpertAdapterScratch& scratch,
                                        const LinearGradients& gradients) {
  if (form.segments.empty()) return;
  const std::int64_t experts = ExpertsOf(routing);
  HiddenValues(routing, x, OfA(weights.lora_a, experts), 1, scratch.hidden);
  FactorGradients(routing, scratch.hidden_gradient, x, 1,
                  {OfA(gradients.lora_a.tensor, experts), gradients.lora_a.add});
  const at::Tensor b =
      OfScratch(scratch.b_gradient, experts, OutOf(weights.lora_b, experts, form.rank), form.rank);
  FactorGradients(routing, scratch.hidden, y_gradient, form.scale, {b, false});
  at::Tensor target = InOrderOfScratch(gradients.lora_b.tensor, experts);
  gradients.lora_b.add ? target.add_(Flat(b)) : target.copy_(Flat(b));
}

void ExpertAdapters::FactorGradients(const Routing& routing, const at::Tensor& hidden,
                                     const at::Tensor& x, double scale,
                                     const GradientTarget& target) {
  const at::Tensor& factors = target.tensor;
  if (x.is_cpu()) {
    GroupedFactorGradients(RowsOf(routing, x, factors, scale), hidden.const_data_ptr(),
                           x.const_data_ptr(),
                           {.to = factors.mutable_data_ptr(),
                            .layout = LayoutOf(factors),
                            .type = ElementTypeOf(factors.scalar_type()),
                            .add = target.add});
    return;
  }
  EachExpert(routing, [&](std::int64_t e, std::int64_t begin, std::int64_t count) {
    at::Tensor of = factors[e];
    if (count == 0) {
      if (!target.add) of.zero_();
      return;
    }
    const at::Tensor h = hidden.narrow(0, begin, count), rows = x.narrow(0, begin, count);
    of.stride(1) == 1 ? weight_gradient_.Write(h, rows, {of, target.add}, scale)
                      : weight_gradient_.Write(rows, h, {of.t(), target.add}, scale);
  });
}

}  // namespace muster
