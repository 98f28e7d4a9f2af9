#include "trainer/ops/cuda/kernel_ops.h"

#include <ATen/ATen.h>

#include "trainer/ops/cuda/kernels/kernels.h"
#include "trainer/ops/cuda/math_attention.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

void CheckLaunch(CudaResult result, const char* what) {
  TORCH_CHECK(result == CudaResult::kSuccess, what, ": CUDA error ", static_cast<int>(result));
}

ElementType TypeOf(const at::Tensor& tensor) { return ElementTypeOf(tensor.scalar_type()); }

// The data of a tensor that may be undefined.
void* PointerTo(const at::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; }
ElementType TypeOrSingle(const at::Tensor& tensor) {
  return tensor.defined() ? TypeOf(tensor) : ElementType::kFloat32;
}

}  // namespace

at::Tensor KernelOps::Scratch(at::IntArrayRef shape, at::ScalarType type) const {
  return at::empty(shape, at::TensorOptions(device()).dtype(type));
}

void KernelOps::AddNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                        double eps, at::Tensor& sum, at::Tensor& y, at::Tensor& scale) {
  Checks().AddNorm(x, delta, weight, sum, y, scale);
  const std::int64_t count = x.size(0), width = x.size(1);
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

void KernelOps::RecomputeRmsNorm(const at::Tensor& sum, const at::Tensor& weight,
                                 const at::Tensor& scale, at::Tensor& y) {
  Checks().RecomputeRmsNorm(sum, weight, scale, y);
  const std::int64_t count = sum.size(0), width = sum.size(1);
  CheckLaunch(cuda::RecomputeRmsNorm({.type = TypeOf(sum),
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
  const at::Tensor& target = weight_gradient.tensor;
  Checks().NormBackward(y_gradient, sum, weight, scale, gradient, target);
  const std::int64_t count = sum.size(0), width = sum.size(1);
  const at::Tensor parts =
      target.defined() ? Scratch({cuda::NormParts(count), width}, WideType(sum.scalar_type()))
                       : at::Tensor();
  CheckLaunch(cuda::NormBackward({.type = TypeOf(sum),
                                  .rows = count,
                                  .width = width,
                                  .y_gradient = y_gradient.data_ptr(),
                                  .sum = sum.data_ptr(),
                                  .weight = weight.data_ptr(),
                                  .scale = scale.data_ptr(),
                                  .gradient = gradient.data_ptr(),
                                  .parts = PointerTo(parts),
                                  .weight_gradient = PointerTo(target),
                                  .weight_gradient_type = TypeOrSingle(target),
                                  .add = weight_gradient.add},
                                 Stream()),
              "norm backward");
}

void KernelOps::QkNorm(const at::Tensor& qkv, const at::Tensor& query_weight,
                       const at::Tensor& key_weight, double eps, const AttentionHeads& heads,
                       at::Tensor& out, at::Tensor& scale) {
  Checks().QkNorm(qkv, query_weight, key_weight, heads, out, scale);
  CheckLaunch(cuda::QkNorm({.type = TypeOf(qkv),
                            .rows = qkv.size(0),
                            .heads = heads.heads,
                            .kv_heads = heads.kv_heads,
                            .head_dim = heads.head_dim,
                            .eps = eps,
                            .qkv = qkv.data_ptr(),
                            .query_weight = query_weight.data_ptr(),
                            .key_weight = key_weight.data_ptr(),
                            .scale = scale.data_ptr(),
                            .out = out.data_ptr()},
                           Stream()),
              "norm of heads");
}

void KernelOps::QkNormBackward(const at::Tensor& qkv, const at::Tensor& query_weight,
                               const at::Tensor& key_weight, const at::Tensor& scale,
                               const AttentionHeads& heads, at::Tensor& gradient,
                               const GradientTarget& query_weight_gradient,
                               const GradientTarget& key_weight_gradient) {
  Checks().QkNormBackward(qkv, query_weight, key_weight, scale, heads, gradient,
                          query_weight_gradient.tensor, key_weight_gradient.tensor);
  const auto parts_for = [&](const GradientTarget& target) {
    return target.tensor.defined() ? Scratch({cuda::QkNormParts(qkv.size(0)), heads.head_dim},
                                             WideType(qkv.scalar_type()))
                                   : at::Tensor();
  };
  const at::Tensor query_parts = parts_for(query_weight_gradient);
  const at::Tensor key_parts = parts_for(key_weight_gradient);
  const auto weight = [](const at::Tensor& parts, const GradientTarget& target) {
    return cuda::HeadWeightGradient{PointerTo(parts), PointerTo(target.tensor),
                                    TypeOrSingle(target.tensor), target.add};
  };
  CheckLaunch(cuda::QkNormBackward({.type = TypeOf(qkv),
                                    .rows = qkv.size(0),
                                    .heads = heads.heads,
                                    .kv_heads = heads.kv_heads,
                                    .head_dim = heads.head_dim,
                                    .qkv = qkv.data_ptr(),
                                    .query_weight = query_weight.data_ptr(),
                                    .key_weight = key_weight.data_ptr(),
                                    .scale = scale.data_ptr(),
                                    .gradient = gradient.data_ptr(),
                                    .query = weight(query_parts, query_weight_gradient),
                                    .key = weight(key_parts, key_weight_gradient)},
                                   Stream()),
              "norm of heads backward");
}

void KernelOps::ApplyRope(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                          const BatchShape& shape, const AttentionHeads& heads, int direction) {
  Checks().ApplyRope(qkv, cos, sin, shape, heads);
  const bool packed = !shape.document_begins.empty();
  CheckLaunch(
      cuda::ApplyRope(
          {.type = TypeOf(qkv),
           .rows = shape.tokens(),
           .heads = heads.heads + heads.kv_heads,
           .head_dim = heads.head_dim,
           .stride = heads.joined_width(),
           .length = shape.length,
           .positions =
               packed ? documents_.For(shape, device()).positions.const_data_ptr<std::int32_t>()
                      : nullptr,
           .qkv = qkv.data_ptr(),
           .cos = cos.data_ptr(),
           .sin = sin.data_ptr(),
           .direction = direction},
          Stream()),
      "rotary embedding");
}

void KernelOps::Attention(const at::Tensor& qkv, const BatchShape& shape,
                          const AttentionHeads& heads, at::Tensor& out, at::Tensor& lse) {
  Checks().Attention(qkv, shape, heads, out, lse);
  MathAttention(qkv, shape, heads, out, lse);
}

void KernelOps::AttentionBackward(const at::Tensor& qkv, const at::Tensor& out,
                                  const at::Tensor& lse, const at::Tensor& out_gradient,
                                  const BatchShape& shape, const AttentionHeads& heads,
                                  at::Tensor& qkv_gradient) {
  Checks().AttentionBackward(qkv, out, lse, out_gradient, shape, heads, qkv_gradient);
  MathAttentionBackward(qkv, out, lse, out_gradient, shape, heads, qkv_gradient);
}

void KernelOps::SwiGlu(const at::Tensor& gate_up, at::Tensor& out) {
  Checks().SwiGlu(gate_up, out);
  const std::int64_t count = out.size(0), width = out.size(1);
  CheckLaunch(cuda::SwiGlu({.type = TypeOf(gate_up),
                            .rows = count,
                            .width = width,
                            .gate_up = gate_up.data_ptr(),
                            .out = out.data_ptr()},
                           Stream()),
              "gated activation");
}

void KernelOps::SwiGluBackward(at::Tensor& gate_up, const at::Tensor& out_gradient,
                               at::Tensor& out) {
  Checks().SwiGluBackward(gate_up, out_gradient, out);
  const std::int64_t count = out.size(0), width = out.size(1);
  CheckLaunch(cuda::SwiGluBackward({.type = TypeOf(gate_up),
                                    .rows = count,
                                    .width = width,
                                    .gate_up = gate_up.data_ptr(),
                                    .out_gradient = out_gradient.data_ptr(),
                                    .out = out.data_ptr()},
                                   Stream()),
              "gated activation backward");
}

void KernelOps::Dropout(const at::Tensor& x, DropoutKey key, double p, at::Tensor& out) {
  Checks().Dropout(x, p, out);
  CheckLaunch(cuda::Dropout({.type = TypeOf(x),
                             .rows = x.size(0),
                             .width = x.size(1),
                             .key = key,
                             .p = p,
                             .x = x.data_ptr(),
                             .out = out.data_ptr()},
                            Stream()),
              "dropout");
}

void KernelOps::CrossEntropy(at::Tensor& logits, const at::Tensor& labels, double scale,
                             at::Tensor& loss) {
  Checks().CrossEntropy(logits, labels, loss);
  const std::int64_t count = logits.size(0), width = logits.size(1);
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

void KernelOps::DequantizeNf4(const Nf4Source& source, at::Tensor& out) {
  Checks().DequantizeNf4(source, out);
  CheckLaunch(cuda::DequantizeNf4(source, out.data_ptr(), TypeOf(out), Stream()),
              "dequantisation of NF4");
}

void KernelOps::EmbeddingBackward(const at::Tensor& gradient, const at::Tensor& ids,
                                  const GradientTarget& table_gradient) {
  const at::Tensor& table = table_gradient.tensor;
  Checks().EmbeddingBackward(gradient, ids, table);
  const std::int64_t count = gradient.size(0), width = gradient.size(1);
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
  Checks().Sum(sum, "the sum of squares");
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
