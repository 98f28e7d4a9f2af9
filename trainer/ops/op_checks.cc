#include "trainer/ops/op_checks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

at::ScalarType WideTypeOf(const at::Tensor& tensor) { return WideType(tensor.scalar_type()); }

void CheckMatrix(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.dim() == 2, name, " has shape ", tensor.sizes(), ", not two dimensions");
}

}  // namespace

void OpChecks::Array(const at::Tensor& tensor, at::IntArrayRef shape, at::ScalarType type,
                     const char* name) const {
  TORCH_CHECK(tensor.defined(), name, " is missing");
  TORCH_CHECK(tensor.sizes() == shape, name, " has shape ", tensor.sizes(), ", not ", shape);
  TORCH_CHECK(tensor.scalar_type() == type, name, " has elements of type ", tensor.scalar_type(),
              ", not ", type);
  TORCH_CHECK(tensor.is_contiguous(), name, " is not contiguous");
  TORCH_CHECK(tensor.device().type() == device_, name, " is on ", tensor.device());
}

void OpChecks::AddNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                       const at::Tensor& sum, const at::Tensor& y, const at::Tensor& scale) const {
  CheckMatrix(x, "x");
  Array(x, x.sizes(), x.scalar_type(), "x");
  if (delta.defined()) Array(delta, x.sizes(), x.scalar_type(), "delta");
  Array(sum, x.sizes(), x.scalar_type(), "the sum");
  RecomputeRmsNorm(sum, weight, scale, y);
}

void OpChecks::RecomputeRmsNorm(const at::Tensor& sum, const at::Tensor& weight,
                                const at::Tensor& scale, const at::Tensor& y) const {
  CheckMatrix(sum, "the sum");
  const at::ScalarType type = sum.scalar_type();
  Array(sum, sum.sizes(), type, "the sum");
  Array(weight, {sum.size(1)}, type, "the norm's weight");
  Array(scale, {sum.size(0)}, WideTypeOf(sum), "the norm's scale");
  Array(y, sum.sizes(), type, "the norm's output");
}

void OpChecks::NormBackward(const at::Tensor& y_gradient, const at::Tensor& sum,
                            const at::Tensor& weight, const at::Tensor& scale,
                            const at::Tensor& gradient, const at::Tensor& weight_gradient) const {
  CheckMatrix(sum, "the sum");
  const at::ScalarType type = sum.scalar_type();
  Array(sum, sum.sizes(), type, "the sum");
  Array(y_gradient, sum.sizes(), type, "the gradient of the norm's output");
  Array(weight, {sum.size(1)}, type, "the norm's weight");
  Array(scale, {sum.size(0)}, WideTypeOf(sum), "the norm's scale");
  Array(gradient, sum.sizes(), type, "the gradient");
  WeightGradient(weight_gradient, sum.size(1), "the gradient of the norm's weight");
}

void OpChecks::QkNorm(const at::Tensor& qkv, const at::Tensor& query_weight,
                      const at::Tensor& key_weight, const AttentionHeads& heads,
                      const at::Tensor& out, const at::Tensor& scale) const {
  CheckMatrix(qkv, "qkv");
  const at::ScalarType type = qkv.scalar_type();
  Array(qkv, {qkv.size(0), heads.joined_width()}, type, "qkv");
  Array(query_weight, {heads.head_dim}, type, "the query norm's weight");
  Array(key_weight, {heads.head_dim}, type, "the key norm's weight");
  Array(out, qkv.sizes(), type, "the normed qkv");
  Array(scale, {qkv.size(0), heads.heads + heads.kv_heads}, WideTypeOf(qkv),
        "the scale of the heads' norms");
  TORCH_CHECK(out.data_ptr() != qkv.data_ptr(), "the normed qkv lies over qkv");
}

void OpChecks::QkNormBackward(const at::Tensor& qkv, const at::Tensor& query_weight,
                              const at::Tensor& key_weight, const at::Tensor& scale,
                              const AttentionHeads& heads, const at::Tensor& gradient,
                              const at::Tensor& query_weight_gradient,
                              const at::Tensor& key_weight_gradient) const {
  QkNorm(qkv, query_weight, key_weight, heads, gradient, scale);
  WeightGradient(query_weight_gradient, heads.head_dim, "the gradient of the query norm's weight");
  WeightGradient(key_weight_gradient, heads.head_dim, "the gradient of the key norm's weight");
}

void OpChecks::WeightGradient(const at::Tensor& target, std::int64_t width,
                              const char* name) const {
  if (target.defined()) Array(target, {width}, target.scalar_type(), name);
}

void CheckDocuments(const BatchShape& shape) {
  const std::vector<std::int64_t>& begins = shape.document_begins;
  if (begins.empty()) return;
  const auto rising = std::adjacent_find(begins.begin(), begins.end(), std::greater_equal<>());
  TORCH_CHECK(rising == begins.end(), "a document begins at token ", *rising,
              ", and the next one not after it");
  TORCH_CHECK(begins.front() >= 0 && begins.back() < shape.tokens(), "documents begin at tokens ",
              begins.front(), " to ", begins.back(), " of ", shape.tokens());
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    TORCH_CHECK(std::binary_search(begins.begin(), begins.end(), row * shape.length),
                "no document begins with row ", row, ", at token ", row * shape.length);
  }
}

void OpChecks::ApplyRope(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                         const BatchShape& shape, const AttentionHeads& heads) const {
  TORCH_CHECK(heads.head_dim % 2 == 0, "heads of ", heads.head_dim, " elements have no halves");
  const std::int64_t half = heads.head_dim / 2;
  Array(qkv, {shape.tokens(), heads.joined_width()}, qkv.scalar_type(), "qkv");
  Array(cos, {shape.length, half}, WideTypeOf(qkv), "the table of cosines");
  Array(sin, {shape.length, half}, WideTypeOf(qkv), "the table of sines");
  CheckDocuments(shape);
}

void OpChecks::Attention(const at::Tensor& qkv, const BatchShape& shape,
                         const AttentionHeads& heads, const at::Tensor& out,
                         const at::Tensor& lse) const {
  const at::ScalarType type = qkv.scalar_type();
  Array(qkv, {shape.tokens(), heads.joined_width()}, type, "qkv");
  Array(out, {shape.tokens(), heads.heads * heads.head_dim}, type, "attention's output");
  Array(lse, {shape.rows, heads.heads, shape.length}, WideTypeOf(qkv),
        "the array of attention's logarithms");
  TORCH_CHECK(heads.window >= 0, "a window of ", heads.window, " tokens");
  CheckDocuments(shape);
}

void OpChecks::AttentionBackward(const at::Tensor& qkv, const at::Tensor& out,
                                 const at::Tensor& lse, const at::Tensor& out_gradient,
                                 const BatchShape& shape, const AttentionHeads& heads,
                                 const at::Tensor& qkv_gradient) const {
  Attention(qkv, shape, heads, out, lse);
  Array(out_gradient, out.sizes(), qkv.scalar_type(), "the gradient of attention's output");
  Array(qkv_gradient, qkv.sizes(), qkv.scalar_type(), "the gradient of qkv");
}

void OpChecks::SwiGlu(const at::Tensor& gate_up, const at::Tensor& out) const {
  CheckMatrix(out, "the gated activation");
  Array(gate_up, {out.size(0), 2 * out.size(1)}, gate_up.scalar_type(), "gate_up");
  Array(out, out.sizes(), gate_up.scalar_type(), "the gated activation");
}

void OpChecks::SwiGluBackward(const at::Tensor& gate_up, const at::Tensor& out_gradient,
                              const at::Tensor& out) const {
  SwiGlu(gate_up, out);
  Array(out_gradient, out.sizes(), gate_up.scalar_type(), "the activation's gradient");
}

void OpChecks::Dropout(const at::Tensor& x, double p, const at::Tensor& out) const {
  CheckMatrix(x, "the input of dropout");
  Array(x, x.sizes(), x.scalar_type(), "the input of dropout");
  Array(out, x.sizes(), x.scalar_type(), "the output of dropout");
  TORCH_CHECK(p >= 0 && p < 1, "dropout with the probability ", p);
}

void OpChecks::CrossEntropy(const at::Tensor& logits, const at::Tensor& labels,
                            const at::Tensor& loss) const {
  CheckMatrix(logits, "the array of logits");
  Array(logits, logits.sizes(), logits.scalar_type(), "the array of logits");
  Array(labels, {logits.size(0)}, at::kLong, "the array of labels");
  Sum(loss, "the loss");
}

void OpChecks::DequantizeNf4(const Nf4Source& source, const at::Tensor& out) const {
  TORCH_CHECK(out.defined(), "the dequantised tensor is missing");
  TORCH_CHECK(out.numel() == source.count, "the dequantised tensor has ", out.numel(),
              " elements, not ", source.count);
  Array(out, out.sizes(), out.scalar_type(), "the dequantised tensor");
  TORCH_CHECK(source.count == 0 || source.codes != nullptr, "the quantised tensor has no codes");
  const bool nested = source.absmax_codes != nullptr && source.nested_absmax != nullptr &&
                      source.nested_code != nullptr;
  TORCH_CHECK(source.count == 0 || source.absmax != nullptr || nested,
              "the quantised tensor has no largest magnitudes of its blocks");
}

void OpChecks::EmbeddingBackward(const at::Tensor& gradient, const at::Tensor& ids,
                                 const at::Tensor& table_gradient) const {
  CheckMatrix(gradient, "the gradient of the embedding");
  CheckMatrix(table_gradient, "the table's gradient");
  Array(gradient, gradient.sizes(), gradient.scalar_type(), "the gradient of the embedding");
  Array(ids, {gradient.size(0)}, at::kLong, "the array of ids");
  Array(table_gradient, {table_gradient.size(0), gradient.size(1)}, table_gradient.scalar_type(),
        "the table's gradient");
}

void OpChecks::Sum(const at::Tensor& sum, const char* name) const {
  TORCH_CHECK(sum.defined() && sum.scalar_type() == at::kDouble && sum.numel() > 0, name,
              " is not an fp64 number");
  TORCH_CHECK(sum.device().type() == device_, name, " is on ", sum.device());
}

}  // namespace muster
