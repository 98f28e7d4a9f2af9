#include "trainer/ops/attention.h"

#include <ATen/ATen.h>

#include <vector>

#include "trainer/ops/cuda/fused_attention.h"
#include "trainer/ops/cuda/kernel_entry.h"
#include "trainer/ops/cuda/math_attention.h"
#include "trainer/ops/documents.h"

namespace muster::cuda {
namespace {

// Some tokens of a batch, and their logarithms [heads, tokens].
struct TokenSums {
  std::int64_t begin = 0;
  at::Tensor sums;
};

// Where `fused` kernels of documents or windows have run, logarithms lie as [heads, N]; else as
// [heads, length] of each document.
std::vector<TokenSums> SumsOf(const at::Tensor& lse, const BatchShape& shape,
                              const AttentionHeads& heads, bool fused) {
  const bool packed = !shape.document_begins.empty() || heads.window > 0;
  if (fused && packed) return {{0, lse.view({heads.heads, shape.tokens()})}};
  std::vector<TokenSums> all;
  const std::vector<std::int64_t> bounds = DocumentBounds(shape);
  for (std::size_t d = 0; d + 1 < bounds.size(); ++d) {
    const std::int64_t length = bounds[d + 1] - bounds[d];
    all.push_back({bounds[d], lse.view({-1})
                                  .narrow(0, bounds[d] * heads.heads, length * heads.heads)
                                  .view({heads.heads, length})});
  }
  return all;
}

// [heads, tokens, head_dim] of some tokens.
at::Tensor ByHead(const at::Tensor& array, const AttentionHeads& heads, const TokenSums& tokens) {
  return array.narrow(0, tokens.begin, tokens.sums.size(1))
      .view({tokens.sums.size(1), heads.heads, heads.head_dim})
      .transpose(0, 1);
}

// What a sink takes of the sum of exponentials, it takes of the output as well.
void CountSinks(const at::Tensor& sinks, const AttentionHeads& heads, const TokenSums& tokens,
                const at::Tensor& out) {
  const at::Tensor sink = sinks.to(tokens.sums.scalar_type()).unsqueeze(1);
  const at::Tensor with_sink = at::logaddexp(tokens.sums, sink);
  ByHead(out, heads, tokens).mul_((tokens.sums - with_sink).exp_().unsqueeze(-1));
  tokens.sums.copy_(with_sink);
}

// A sink's value is zero: all that a larger share of it does is to take from the others. [heads]
at::Tensor SinkGradients(const op::AttentionBackward& a, const std::vector<TokenSums>& all,
                         KernelScope& scope) {
  const at::Tensor out = scope.TensorOf(a.out), out_gradient = scope.TensorOf(a.out_gradient);
  const at::ScalarType wide = all.front().sums.scalar_type();
  const at::Tensor sink = scope.TensorOf(a.sinks).to(wide).unsqueeze(1);
  at::Tensor gradients = at::zeros({a.heads.heads}, all.front().sums.options());
  for (const TokenSums& tokens : all) {
    const at::Tensor along =
        (ByHead(out, a.heads, tokens).to(wide) * ByHead(out_gradient, a.heads, tokens).to(wide))
            .sum(-1);
    gradients.sub_(((sink - tokens.sums).exp_() * along).sum(-1));
  }
  return gradients;
}

}  // namespace

CudaResult RunOnCuda(const op::Attention& a, KernelScope& scope) {
  const at::Tensor qkv = scope.TensorOf(a.qkv);
  at::Tensor out = scope.TensorOf(a.out), lse = scope.TensorOf(a.lse);
  const FusedAttention* const fused = scope.attention();
  const bool is_fused = fused != nullptr && fused->Forward(qkv, a.shape, a.heads, out, lse);
  if (!is_fused) MathAttention(qkv, a.shape, a.heads, out, lse);
  if (a.sinks.defined()) {
    for (const TokenSums& tokens : SumsOf(lse, a.shape, a.heads, is_fused))
      CountSinks(scope.TensorOf(a.sinks), a.heads, tokens, out);
  }
  return CudaResult::kSuccess;
}

CudaResult RunOnCuda(const op::AttentionBackward& a, KernelScope& scope) {
  const at::Tensor qkv = scope.TensorOf(a.qkv), out = scope.TensorOf(a.out);
  const at::Tensor lse = scope.TensorOf(a.lse);
  const at::Tensor out_gradient = scope.TensorOf(a.out_gradient);
  at::Tensor qkv_gradient = scope.TensorOf(a.qkv_gradient);
  const FusedAttention* const fused = scope.attention();
  const bool is_fused = fused != nullptr && fused->Backward(qkv, out, lse, out_gradient, a.shape,
                                                            a.heads, qkv_gradient);
  if (!is_fused) MathAttentionBackward(qkv, out, lse, out_gradient, a.shape, a.heads, qkv_gradient);
  if (a.sink_gradients.array.defined()) {
    const at::Tensor gradients = SinkGradients(a, SumsOf(lse, a.shape, a.heads, is_fused), scope);
    at::Tensor target = scope.TensorOf(a.sink_gradients.array);
    a.sink_gradients.add ? target.add_(gradients) : target.copy_(gradients);
  }
  return CudaResult::kSuccess;
}

template CudaResult CudaKernel<op::Attention>(const void*, KernelScope&);
template CudaResult CudaKernel<op::AttentionBackward>(const void*, KernelScope&);

}  // namespace muster::cuda
