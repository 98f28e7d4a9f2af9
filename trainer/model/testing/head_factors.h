// HeadFactors: a device that keeps what the gradient of a bf16 head is multiplied of.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "trainer/ops/cross_entropy.h"
#include "trainer/ops/norm.h"
#include "trainer/ops/testing/forwarding_ops.h"

namespace muster {

class HeadFactors final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  void RunKernel(const AnyOperator& op) override {
    ForwardingOps::RunKernel(op);
    const auto copy = [](const ConstArray& rows) {
      return at::from_blob(const_cast<void*>(rows.data()), {rows.rows(), rows.width()},
                           at::kBFloat16)
          .clone();
    };
    if (const auto* entropy = op.As<op::CrossEntropy>()) logits.push_back(copy(entropy->logits));
    if (const auto* norm = op.As<op::AddNorm>()) normed = copy(norm->y);
  }

  std::vector<at::Tensor> logits;  // their gradients, chunk by chunk: [rows, V]
  at::Tensor normed;               // [rows of all chunks, H]
};

}  // namespace muster
