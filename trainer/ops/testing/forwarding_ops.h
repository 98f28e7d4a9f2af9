// ForwardingOps: passes every operation on to another DeviceOps. Tests and measurements derive from
// it and override what they watch or replace.
#pragma once

#include <memory>
#include <string>

#include "trainer/ops/device_ops.h"

namespace muster {

class ForwardingOps : public DeviceOps {
 public:
  // `to` outlives the object.
  explicit ForwardingOps(DeviceOps& to) : to_(to) {}

  at::Device device() const override { return to_.device(); }
  std::string Describe() const override { return to_.Describe(); }
  at::Tensor Allocate(std::size_t bytes) override { return to_.Allocate(bytes); }
  at::Tensor AllocateHost(std::size_t bytes) override { return to_.AllocateHost(bytes); }
  std::shared_ptr<void> PinHost(void* memory, std::size_t bytes) override {
    return to_.PinHost(memory, bytes);
  }
  bool is_host() const override { return to_.is_host(); }
  std::unique_ptr<DeviceCopy> Copy(void* to, const void* from, std::size_t bytes) override {
    return to_.Copy(to, from, bytes);
  }

  void AddNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps,
               at::Tensor& sum, at::Tensor& y, at::Tensor& scale) override {
    to_.AddNorm(x, delta, weight, eps, sum, y, scale);
  }
  void RecomputeRmsNorm(const at::Tensor& sum, const at::Tensor& weight, const at::Tensor& scale,
                        at::Tensor& y) override {
    to_.RecomputeRmsNorm(sum, weight, scale, y);
  }
  void NormBackward(const at::Tensor& y_gradient, const at::Tensor& sum, const at::Tensor& weight,
                    const at::Tensor& scale, at::Tensor& gradient,
                    const GradientTarget& weight_gradient) override {
    to_.NormBackward(y_gradient, sum, weight, scale, gradient, weight_gradient);
  }
  void QkNorm(const at::Tensor& qkv, const at::Tensor& query_weight, const at::Tensor& key_weight,
              double eps, const AttentionHeads& heads, at::Tensor& out,
              at::Tensor& scale) override {
    to_.QkNorm(qkv, query_weight, key_weight, eps, heads, out, scale);
  }
  void QkNormBackward(const at::Tensor& qkv, const at::Tensor& query_weight,
                      const at::Tensor& key_weight, const at::Tensor& scale,
                      const AttentionHeads& heads, at::Tensor& gradient,
                      const GradientTarget& query_weight_gradient,
                      const GradientTarget& key_weight_gradient) override {
    to_.QkNormBackward(qkv, query_weight, key_weight, scale, heads, gradient, query_weight_gradient,
                       key_weight_gradient);
  }
  void ApplyRope(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                 const BatchShape& shape, const AttentionHeads& heads, int direction) override {
    to_.ApplyRope(qkv, cos, sin, shape, heads, direction);
  }
  void Attention(const at::Tensor& qkv, const BatchShape& shape, const AttentionHeads& heads,
                 at::Tensor& out, at::Tensor& lse) override {
    to_.Attention(qkv, shape, heads, out, lse);
  }
  void AttentionBackward(const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& lse,
                         const at::Tensor& out_gradient, const BatchShape& shape,
                         const AttentionHeads& heads, at::Tensor& qkv_gradient) override {
    to_.AttentionBackward(qkv, out, lse, out_gradient, shape, heads, qkv_gradient);
  }
  void SwiGlu(const at::Tensor& gate_up, at::Tensor& out) override { to_.SwiGlu(gate_up, out); }
  void SwiGluBackward(at::Tensor& gate_up, const at::Tensor& out_gradient,
                      at::Tensor& out) override {
    to_.SwiGluBackward(gate_up, out_gradient, out);
  }
  void Dropout(const at::Tensor& x, DropoutKey key, double p, at::Tensor& out) override {
    to_.Dropout(x, key, p, out);
  }
  void CrossEntropy(at::Tensor& logits, const at::Tensor& labels, double scale,
                    at::Tensor& loss) override {
    to_.CrossEntropy(logits, labels, scale, loss);
  }
  void DequantizeNf4(const Nf4Source& source, at::Tensor& out) override {
    to_.DequantizeNf4(source, out);
  }
  void EmbeddingBackward(const at::Tensor& gradient, const at::Tensor& ids,
                         const GradientTarget& table_gradient) override {
    to_.EmbeddingBackward(gradient, ids, table_gradient);
  }
  void AdamW(const OptimizerArrays& arrays, const AdamWOptions& options,
             const AdamWStep& step) override {
    to_.AdamW(arrays, options, step);
  }
  void SumOfSquares(const void* values, ElementType type, std::int64_t count,
                    at::Tensor& sum) override {
    to_.SumOfSquares(values, type, count, sum);
  }
  void Convert(const void* from, ElementType from_type, void* to, ElementType to_type,
               std::int64_t count, bool add) override {
    to_.Convert(from, from_type, to, to_type, count, add);
  }

 private:
  DeviceOps& to_;
};

}  // namespace muster
