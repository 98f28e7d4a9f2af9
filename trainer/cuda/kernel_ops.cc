#include "trainer/cuda/kernel_ops.h"

#include <ATen/ATen.h>

#include "trainer/cuda/kernels/kernels.h"
#include "trainer/cuda/plain_attention.h"
#include "trainer/device/scalar_type.h"

namespace muster {
namespace {

void CheckLaunch(CudaResult result, const char* what) {
  TORCH_CHECK(result == CudaResult::kSuccess, what, ": CUDA error ", static_cast<int>(result));
}

ElementType TypeOf(const at::Tensor& tensor) { return ElementTypeOf(tensor.scalar_type()); }

at::ScalarType WideOf(const at::Tensor& tensor) { return WideType(tensor.scalar_type()); }

}  // namespace

void KernelOps::CheckArray(const at::Tensor& tensor, at::IntArrayRef shape, at::ScalarType type,
                           const char* name) const {
  TORCH_CHECK(tensor.sizes() == shape, name, " has shape ", tensor.sizes(), ", not ", shape);
  TORCH_CHECK(tensor.scalar_type() == type, name, " is ", tensor.scalar_type(), ", not ", type);
  TORCH_CHECK(tensor.is_contiguous() && tensor.device().type() == device().type(), name,
              " is not a contiguous tensor of the device");
}

at::Tensor KernelOps::Scratch(at::IntArrayRef shape, at::ScalarType type) const {
  return at::empty(shape, at::TensorOptions(device()).dtype(type));
}

void KernelOps::AddNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                        double eps, at::Tensor& sum, at::Tensor& y, at::Tensor& scale) {
  const std::int64_t count = x.size(0), width = x.size(1);
  const at::ScalarType type = x.scalar_type();
  CheckArray(x, {count, width}, type, "x");
  if (delta.defined()) CheckArray(delta, {count, width}, type, "delta");
  CheckArray(weight, {width}, type, "the norm's weight");
  CheckArray(sum, {count, width}, type, "the sum");
  CheckArray(y, {count, width}, type, "the norm's output");
  CheckArray(scale, {count}, WideOf(x), "the norm's scale");
  CheckLaunch(cuda::AddNorm({.type = TypeOf(x),
                             .rows = count,
                             .width = width,
                             .eps = eps,
                             .x = x.data_ptr(),
                             .delta = delta.defined() ? delta.data_ptr() : nullptr,
                             .sum = sum.data_ptr(),
                             .weight = weight.data_ptr(),
                             .scale = scale.data_ptr(),
                             .y = y.data_ptr()},
                            Stream()),
              "norm");
}

void KernelOps::NormAgain(const at::Tensor& sum, const at::Tensor& weight, const at::Tensor& scale,
                          at::Tensor& y) {
  const std::int64_t count = sum.size(0), width = sum.size(1);
  const at::ScalarType type = sum.scalar_type();
  CheckArray(sum, {count, width}, type, "the sum");
  CheckArray(weight, {width}, type, "the norm's weight");
  CheckArray(scale, {count}, WideOf(sum), "the norm's scale");
  CheckArray(y, {count, width}, type, "the norm's output");
  CheckLaunch(cuda::NormAgain({.type = TypeOf(sum),
                               .rows = count,
                               .width = width,
                               .sum = sum.data_ptr(),
                               .weight = weight.data_ptr(),
                               .scale = scale.data_ptr(),
                               .y = y.data_ptr()},
                              Stream()),
              "norm");
}

void KernelOps::NormBackward(const at::Tensor& y_gradient, const at::Tensor& sum,
                             const at::Tensor& weight, const at::Tensor& scale,
                             at::Tensor& gradient, const GradientTarget& weight_gradient) {
  const std::int64_t count = sum.size(0), width = sum.size(1);
  const at::ScalarType type = sum.scalar_type();
  const at::Tensor& target = weight_gradient.tensor;
  CheckArray(y_gradient, {count, width}, type, "the gradient of the norm's output");
  CheckArray(sum, {count, width}, type, "the sum");
  CheckArray(weight, {width}, type, "the norm's weight");
  CheckArray(scale, {count}, WideOf(sum), "the norm's scale");
  CheckArray(gradient, {count, width}, type, "the gradient");
  CheckArray(target, {width}, target.scalar_type(), "the gradient of the norm's weight");
  const at::Tensor parts = Scratch({cuda::NormParts(count), width}, WideOf(sum));
  CheckLaunch(cuda::NormBackward({.type = TypeOf(sum),
                                  .rows = count,
                                  .width = width,
                                  .y_gradient = y_gradient.data_ptr(),
                                  .sum = sum.data_ptr(),
                                  .weight = weight.data_ptr(),
                                  .scale = scale.data_ptr(),
                                  .gradient = gradient.data_ptr(),
                                  .parts = parts.data_ptr(),
                                  .weight_gradient = target.data_ptr(),
                                  .weight_gradient_type = TypeOf(target),
                                  .add = weight_gradient.add},
                                 Stream()),
              "norm backward");
}

void KernelOps::Rotate(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                       const BatchShape& shape, const AttentionHeads& heads, int direction) {
  const std::int64_t half = heads.head_dim / 2;
  CheckArray(qkv, {shape.tokens(), heads.joined_width()}, qkv.scalar_type(), "qkv");
  CheckArray(cos, {shape.length, half}, WideOf(qkv), "the cosines");
  CheckArray(sin, {shape.length, half}, WideOf(qkv), "the sines");
  CheckLaunch(cuda::Rotate({.type = TypeOf(qkv),
                            .rows = shape.tokens(),
                            .heads = heads.heads + heads.kv_heads,
                            .head_dim = heads.head_dim,
                            .stride = heads.joined_width(),
                            .length = shape.length,
                            .qkv = qkv.data_ptr(),
                            .cos = cos.data_ptr(),
                            .sin = sin.data_ptr(),
                            .direction = direction},
                           Stream()),
              "rotary embedding");
}

void KernelOps::CheckAttention(const at::Tensor& qkv, const BatchShape& shape,
                               const AttentionHeads& heads, const at::Tensor& out,
                               const at::Tensor& lse) const {
  const at::ScalarType type = qkv.scalar_type();
  CheckArray(qkv, {shape.tokens(), heads.joined_width()}, type, "qkv");
  CheckArray(out, {shape.tokens(), heads.heads * heads.head_dim}, type, "attention's output");
  CheckArray(lse, {shape.rows, heads.heads, shape.length}, WideOf(qkv), "attention's logarithms");
}

void KernelOps::Attention(const at::Tensor& qkv, const BatchShape& shape,
                          const AttentionHeads& heads, at::Tensor& out, at::Tensor& lse) {
  CheckAttention(qkv, shape, heads, out, lse);
  PlainAttention(qkv, shape, heads, out, lse);
}

void KernelOps::AttentionBackward(const at::Tensor& qkv, const at::Tensor& out,
                                  const at::Tensor& lse, const at::Tensor& out_gradient,
                                  const BatchShape& shape, const AttentionHeads& heads,
                                  at::Tensor& qkv_gradient) {
  CheckAttention(qkv, shape, heads, out, lse);
  CheckAttention(qkv_gradient, shape, heads, out_gradient, lse);
  PlainAttentionBackward(qkv, out, lse, out_gradient, shape, heads, qkv_gradient);
}

void KernelOps::GatedSilu(const at::Tensor& gate_up, at::Tensor& out) {
  const std::int64_t count = out.size(0), width = out.size(1);
  CheckArray(gate_up, {count, 2 * width}, gate_up.scalar_type(), "gate_up");
  CheckArray(out, {count, width}, gate_up.scalar_type(), "the gated activation");
  CheckLaunch(cuda::GatedSilu({.type = TypeOf(gate_up),
                               .rows = count,
                               .width = width,
                               .gate_up = gate_up.data_ptr(),
                               .out = out.data_ptr()},
                              Stream()),
              "gated activation");
}

void KernelOps::GatedSiluBackward(at::Tensor& gate_up, const at::Tensor& out_gradient,
                                  at::Tensor& out) {
  const std::int64_t count = out.size(0), width = out.size(1);
  CheckArray(gate_up, {count, 2 * width}, gate_up.scalar_type(), "gate_up");
  CheckArray(out_gradient, {count, width}, gate_up.scalar_type(), "the activation's gradient");
  CheckArray(out, {count, width}, gate_up.scalar_type(), "the gated activation");
  CheckLaunch(cuda::GatedSiluBackward({.type = TypeOf(gate_up),
                                       .rows = count,
                                       .width = width,
                                       .gate_up = gate_up.data_ptr(),
                                       .out_gradient = out_gradient.data_ptr(),
                                       .out = out.data_ptr()},
                                      Stream()),
              "gated activation backward");
}

void KernelOps::CrossEntropy(at::Tensor& logits, const at::Tensor& labels, double scale,
                             at::Tensor& loss) {
  const std::int64_t count = logits.size(0), width = logits.size(1);
  CheckArray(logits, {count, width}, logits.scalar_type(), "the logits");
  CheckArray(labels, {count}, at::kLong, "the labels");
  TORCH_CHECK(loss.scalar_type() == at::kDouble && loss.numel() > 0, "the loss is one fp64 number");
  const at::Tensor row_losses = Scratch({count}, at::kDouble);
  CheckLaunch(cuda::CrossEntropy({.type = TypeOf(logits),
                                  .rows = count,
                                  .width = width,
                                  .labels = labels.const_data_ptr<std::int64_t>(),
                                  .scale = scale,
                                  .logits = logits.data_ptr(),
                                  .row_losses = row_losses.data_ptr<double>(),
                                  .loss = loss.data_ptr<double>()},
                                 Stream()),
              "cross entropy");
}

void KernelOps::EmbeddingBackward(const at::Tensor& gradient, const at::Tensor& ids,
                                  const GradientTarget& table_gradient) {
  const at::Tensor& table = table_gradient.tensor;
  const std::int64_t count = gradient.size(0), width = gradient.size(1);
  CheckArray(gradient, {count, width}, gradient.scalar_type(), "the gradient of the embedding");
  CheckArray(ids, {count}, at::kLong, "the ids");
  CheckArray(table, {table.size(0), width}, table.scalar_type(), "the table's gradient");
  // Stable, so that the places of a word stay in order.
  const auto [words, places] = at::sort(ids, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  CheckLaunch(cuda::EmbeddingBackward({.type = TypeOf(gradient),
                                       .rows = count,
                                       .width = width,
                                       .vocabulary = table.size(0),
                                       .words = words.const_data_ptr<std::int64_t>(),
                                       .places = places.const_data_ptr<std::int64_t>(),
                                       .gradient = gradient.data_ptr(),
                                       .table = table.data_ptr(),
                                       .table_type = TypeOf(table),
                                       .add = table_gradient.add},
                                      Stream()),
              "embedding backward");
}

void KernelOps::AdamW(const OptimizerArrays& arrays, const AdamWOptions& options,
                      const AdamWStep& step) {
  CheckLaunch(cuda::AdamW(arrays, options, step, Stream()), "AdamW");
}

void KernelOps::SumOfSquares(const void* values, ElementType type, std::int64_t count,
                             at::Tensor& sum) {
  TORCH_CHECK(sum.scalar_type() == at::kDouble && sum.numel() > 0, "the sum is one fp64 number");
  const at::Tensor parts = Scratch({cuda::SquareParts(count)}, at::kDouble);
  CheckLaunch(cuda::SumOfSquares(values, type, count, parts.data_ptr<double>(),
                                 sum.data_ptr<double>(), Stream()),
              "sum of squares");
}

void KernelOps::Convert(const void* from, ElementType from_type, void* to, ElementType to_type,
                        std::int64_t count, bool add) {
  CheckLaunch(cuda::Convert({.from = from,
                             .from_type = from_type,
                             .to = to,
                             .to_type = to_type,
                             .rows = 1,
                             .columns = count,
                             .add = add},
                            Stream()),
              "conversion");
}

}  // namespace muster
