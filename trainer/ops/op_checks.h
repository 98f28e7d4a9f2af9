// What DeviceOps' operations demand of their tensors: shapes, types, contiguity, the device.
//
// Every implementation asks first, so all refuse the same arguments with the same words: a Torch
// exception that names the tensor, what it has and what it should have. What only the values show
// (a label beyond the vocabulary) is each implementation's own.
//
// Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/ops/device_ops.h"

namespace muster {

class OpChecks {
 public:
  explicit OpChecks(at::DeviceType device) : device_(device) {}

  void AddNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
               const at::Tensor& sum, const at::Tensor& y, const at::Tensor& scale) const;
  void RecomputeRmsNorm(const at::Tensor& sum, const at::Tensor& weight, const at::Tensor& scale,
                        const at::Tensor& y) const;
  // An undefined weight gradient is none.
  void NormBackward(const at::Tensor& y_gradient, const at::Tensor& sum, const at::Tensor& weight,
                    const at::Tensor& scale, const at::Tensor& gradient,
                    const at::Tensor& weight_gradient) const;
  void QkNorm(const at::Tensor& qkv, const at::Tensor& query_weight, const at::Tensor& key_weight,
              const AttentionHeads& heads, const at::Tensor& out, const at::Tensor& scale) const;
  void QkNormBackward(const at::Tensor& qkv, const at::Tensor& query_weight,
                      const at::Tensor& key_weight, const at::Tensor& scale,
                      const AttentionHeads& heads, const at::Tensor& gradient,
                      const at::Tensor& query_weight_gradient,
                      const at::Tensor& key_weight_gradient) const;
  void ApplyRope(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                 const BatchShape& shape, const AttentionHeads& heads) const;
  void Attention(const at::Tensor& qkv, const BatchShape& shape, const AttentionHeads& heads,
                 const at::Tensor& out, const at::Tensor& lse) const;
  void AttentionBackward(const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& lse,
                         const at::Tensor& out_gradient, const BatchShape& shape,
                         const AttentionHeads& heads, const at::Tensor& qkv_gradient) const;
  void SwiGlu(const at::Tensor& gate_up, const at::Tensor& out) const;
  void SwiGluBackward(const at::Tensor& gate_up, const at::Tensor& out_gradient,
                      const at::Tensor& out) const;
  void Dropout(const at::Tensor& x, double p, const at::Tensor& out) const;
  void CrossEntropy(const at::Tensor& logits, const at::Tensor& labels,
                    const at::Tensor& loss) const;
  void DequantizeNf4(const Nf4Source& source, const at::Tensor& out) const;
  void EmbeddingBackward(const at::Tensor& gradient, const at::Tensor& ids,
                         const at::Tensor& table_gradient) const;
  // fp64, with one element at least.
  void Sum(const at::Tensor& sum, const char* name) const;

 private:
  void Array(const at::Tensor& tensor, at::IntArrayRef shape, at::ScalarType type,
             const char* name) const;

  // Accepts an undefined target.
  void WeightGradient(const at::Tensor& target, std::int64_t width, const char* name) const;

  at::DeviceType device_;
};

// That the documents cover the rows and none crosses a row's end.
void CheckDocuments(const BatchShape& shape);

}  // namespace muster
