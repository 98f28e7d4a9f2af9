// KernelOps: the part of a GPU's DeviceOps that is kernels of ours.
//
// It checks arguments, brings scratch memory and puts kernels on the stream. Where memory comes
// from, what the stream is and which attention is fast, CudaOps adds; a test adds memory of the
// host, over which the emulated kernels run.
//
// The trainer's thread. What ATen allocates here for a kernel is reused in the stream's order.
#pragma once

#include "trainer/core/cuda_api.h"
#include "trainer/ops/cuda/device_documents.h"
#include "trainer/ops/device_ops.h"
#include "trainer/ops/op_checks.h"

namespace muster {

class KernelOps : public DeviceOps {
 public:
  void AddNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps,
               at::Tensor& sum, at::Tensor& y, at::Tensor& scale) override;
  void RecomputeRmsNorm(const at::Tensor& sum, const at::Tensor& weight, const at::Tensor& scale,
                        at::Tensor& y) override;
  void NormBackward(const at::Tensor& y_gradient, const at::Tensor& sum, const at::Tensor& weight,
                    const at::Tensor& scale, at::Tensor& gradient,
                    const GradientTarget& weight_gradient) override;
  void QkNorm(const at::Tensor& qkv, const at::Tensor& query_weight, const at::Tensor& key_weight,
              double eps, const AttentionHeads& heads, at::Tensor& out, at::Tensor& scale) override;
  void QkNormBackward(const at::Tensor& qkv, const at::Tensor& query_weight,
                      const at::Tensor& key_weight, const at::Tensor& scale,
                      const AttentionHeads& heads, at::Tensor& gradient,
                      const GradientTarget& query_weight_gradient,
                      const GradientTarget& key_weight_gradient) override;
  void ApplyRope(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                 const BatchShape& shape, const AttentionHeads& heads, int direction) override;
  void Attention(const at::Tensor& qkv, const BatchShape& shape, const AttentionHeads& heads,
                 at::Tensor& out, at::Tensor& lse) override;
  void AttentionBackward(const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& lse,
                         const at::Tensor& out_gradient, const BatchShape& shape,
                         const AttentionHeads& heads, at::Tensor& qkv_gradient) override;
  void SwiGlu(const at::Tensor& gate_up, at::Tensor& out) override;
  void SwiGluBackward(at::Tensor& gate_up, const at::Tensor& out_gradient,
                      at::Tensor& out) override;
  void Dropout(const at::Tensor& x, DropoutKey key, double p, at::Tensor& out) override;
  // A label beyond the vocabulary makes the loss NaN: the device reports it too late.
  void CrossEntropy(at::Tensor& logits, const at::Tensor& labels, double scale,
                    at::Tensor& loss) override;
  void DequantizeNf4(const Nf4Source& source, at::Tensor& out) override;
  // Ids outside of the table are passed over.
  void EmbeddingBackward(const at::Tensor& gradient, const at::Tensor& ids,
                         const GradientTarget& table_gradient) override;
  void AdamW(const OptimizerArrays& arrays, const AdamWOptions& options,
             const AdamWStep& step) override;
  void SumOfSquares(const void* values, ElementType type, std::int64_t count,
                    at::Tensor& sum) override;
  void Convert(const void* from, ElementType from_type, void* to, ElementType to_type,
               std::int64_t count, bool add) override;

 protected:
  // What kernels are put on.
  virtual CudaStream Stream() const = 0;
  OpChecks Checks() const { return OpChecks(device().type()); }

 private:
  at::Tensor Scratch(at::IntArrayRef shape, at::ScalarType type) const;

  DeviceDocuments documents_;
};

}  // namespace muster
