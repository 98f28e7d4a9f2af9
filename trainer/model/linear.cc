#include "trainer/model/linear.h"

#include <ATen/ATen.h>

#include "trainer/model/products.h"
#include "trainer/ops/convert.h"
#include "trainer/ops/dropout.h"
#include "trainer/ops/nf4.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

// The output of a matrix, the hidden values and the second matrices, each cut to one adapter.
struct AdapterPart {
  at::Tensor y;       // [N, rows]
  at::Tensor hidden;  // [N, rank]
  at::Tensor b;       // [rows, rank]
};

template <typename Function>
void ForEachAdapter(const LoraForm& lora, const at::Tensor& y, const at::Tensor& hidden,
                    const at::Tensor& b, Function function) {
  std::int64_t row = 0, column = 0;
  for (const LoraSegment& segment : lora.segments) {
    AdapterPart part{.y = y.narrow(1, segment.begin, segment.rows),
                     .hidden = hidden.narrow(1, column, lora.rank),
                     .b = b.narrow(0, row, segment.rows)};
    function(part);
    row += segment.rows;
    column += lora.rank;
  }
}

}  // namespace

void Deliver(DeviceOps& ops, const at::Tensor& gradient, const GradientTarget& target) {
  ops.Run(op::Convert{gradient.const_data_ptr(), ElementTypeOf(gradient.scalar_type()),
                      target.tensor.mutable_data_ptr(), ElementTypeOf(target.tensor.scalar_type()),
                      gradient.numel(), target.add});
}

at::Tensor CutLoraHidden(const LoraForm& form, BumpAllocator& allocator, std::int64_t tokens,
                         at::ScalarType type) {
  if (form.segments.empty()) return {};
  return allocator.Cut({tokens, form.hidden_width()}, type);
}

void LinearForward(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y) {
  MultiplyInto(y, x, weight.t());
}

void LinearInputGradient(const at::Tensor& y_gradient, const at::Tensor& weight,
                         at::Tensor& x_gradient) {
  MultiplyInto(x_gradient, y_gradient, weight);
}

void LinearWeightGradient::Write(const at::Tensor& y_gradient, const at::Tensor& x,
                                 const GradientTarget& target, double scale) {
  at::Tensor out = target.tensor;
  if (out.scalar_type() != x.scalar_type()) {
    // MKL takes twice as long and more where it overwrites.
    if (!target.add) out.zero_();
    AddWideProduct(out, y_gradient, x, scale);
  } else if (target.add || scale != 1) {
    MultiplyAddInto(out, out, y_gradient.t(), x, target.add ? 1 : 0, scale);
  } else {
    MultiplyInto(out, y_gradient.t(), x);
  }
}

void LinearWeightGradient::WriteBias(const at::Tensor& y_gradient, const GradientTarget& target) {
  at::Tensor out = target.tensor;
  if (out.scalar_type() == y_gradient.scalar_type() && !target.add) {
    at::sum_out(out, y_gradient, {0});
    return;
  }
  at::Tensor sum;
  scratch_.Fit([&](BumpAllocator& allocator) {
    sum = allocator.Cut(out.sizes(), y_gradient.scalar_type());
  });
  at::sum_out(sum, y_gradient, {0});
  Deliver(ops_, sum, target);
}

at::Tensor MatrixReader::Read(const LinearWeights& weights, at::ScalarType type, std::int64_t part,
                              std::int64_t parts) {
  if (weights.packed == nullptr) {
    const std::int64_t rows = weights.weight.size(0) / parts;
    return weights.weight.narrow(0, part * rows, rows);
  }
  const PackedMatrix& packed = *weights.packed;
  at::Tensor matrix;
  unpacked_.Fit([&](BumpAllocator& allocator) {
    matrix = allocator.Cut({packed.rows() / parts, packed.columns}, type);
  });
  const std::size_t joined = packed.parts.size() / static_cast<std::size_t>(parts);
  std::int64_t row = 0;
  for (std::size_t p = 0; p < joined; ++p) {
    const PackedMatrix::Part& each = packed.parts[static_cast<std::size_t>(part) * joined + p];
    at::Tensor rows = matrix.narrow(0, row, each.rows);
    ops_.Run(op::DequantizeNf4{each.source, rows});
    row += each.rows;
  }
  return matrix;
}

at::Tensor LinearOps::DroppedScratch(const at::Tensor& like) {
  at::Tensor dropped;
  dropped_.Fit(
      [&](BumpAllocator& allocator) { dropped = allocator.Cut(like.sizes(), like.scalar_type()); });
  return dropped;
}

at::Tensor LinearOps::AdapterInput(const at::Tensor& x, const LoraPass& lora) {
  if (!lora.drops()) return x;
  at::Tensor dropped = DroppedScratch(x);
  ops_.Run(op::Dropout{x, *lora.mask, lora.form.dropout, dropped});
  return dropped;
}

void LinearOps::Forward(const at::Tensor& x, const LinearWeights& weights, const LoraPass& lora,
                        at::Tensor& hidden, at::Tensor& y) {
  const at::Tensor matrix = matrices_.Read(weights, x.scalar_type());
  if (weights.bias.defined()) {
    MultiplyAddInto(y, weights.bias, x, matrix.t());
  } else {
    LinearForward(x, matrix, y);
  }
  if (lora.empty()) return;
  AdapterForward(x, weights, lora, hidden);
  ForEachAdapter(lora.form, y, hidden, weights.lora_b, [&](AdapterPart& part) {
    MultiplyAddInto(part.y, part.y, part.hidden, part.b.t(), 1, lora.form.scale);
  });
}

void LinearOps::AdapterForward(const at::Tensor& x, const LinearWeights& weights,
                               const LoraPass& lora, at::Tensor& hidden) {
  if (!lora.empty()) LinearForward(AdapterInput(x, lora), weights.lora_a, hidden);
}

void LinearOps::InputGradient(const at::Tensor& y_gradient, const LinearWeights& weights,
                              const LoraPass& lora, at::Tensor& x_gradient) {
  LinearInputGradient(y_gradient, matrices_.Read(weights, y_gradient.scalar_type()), x_gradient);
  if (lora.empty()) return;
  scratch_.Fit([&](BumpAllocator& allocator) {
    hidden_gradient_ =
        allocator.Cut({y_gradient.size(0), lora.form.hidden_width()}, y_gradient.scalar_type());
  });
  ForEachAdapter(lora.form, y_gradient, hidden_gradient_, weights.lora_b, [&](AdapterPart& part) {
    MultiplyAddInto(part.hidden, part.hidden, part.y, part.b, 0, lora.form.scale);
  });
  if (!lora.drops()) {
    MultiplyAddInto(x_gradient, x_gradient, hidden_gradient_, weights.lora_a);
    return;
  }
  at::Tensor dropped = DroppedScratch(x_gradient);
  LinearInputGradient(hidden_gradient_, weights.lora_a, dropped);
  ops_.Run(op::Dropout{dropped, *lora.mask, lora.form.dropout, dropped});
  x_gradient.add_(dropped);
}

void LinearOps::ParameterGradients(const at::Tensor& y_gradient, const at::Tensor& x,
                                   const at::Tensor& hidden, const LoraPass& lora,
                                   const LinearGradients& gradients) {
  if (gradients.weight.tensor.defined()) weight_gradient_.Write(y_gradient, x, gradients.weight);
  if (gradients.bias.tensor.defined()) weight_gradient_.WriteBias(y_gradient, gradients.bias);
  if (lora.empty()) return;
  weight_gradient_.Write(hidden_gradient_, AdapterInput(x, lora), gradients.lora_a);
  ForEachAdapter(lora.form, y_gradient, hidden, gradients.lora_b.tensor, [&](AdapterPart& part) {
    weight_gradient_.Write(part.y, part.hidden, {part.b, gradients.lora_b.add}, lora.form.scale);
  });
}

}  // namespace muster
