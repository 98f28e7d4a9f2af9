#include "trainer/cuda/plain_attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "trainer/device/scalar_type.h"

namespace muster {
namespace {

// One key head of one batch row, in W. The query heads that share it are [group, length, head_dim].
struct Head {
  at::Tensor query, key, value;
};

// The places of one key head and of its query heads in arrays of joined heads.
class HeadViews {
 public:
  HeadViews(const at::Tensor& joined, const BatchShape& shape, const AttentionHeads& heads)
      : joined_(joined.view(
            {shape.rows, shape.length, heads.heads + 2 * heads.kv_heads, heads.head_dim})),
        heads_(heads) {}

  at::Tensor Query(std::int64_t row, std::int64_t kv_head) const {
    return joined_[row].narrow(1, kv_head * Group(), Group()).transpose(0, 1);
  }
  at::Tensor Key(std::int64_t row, std::int64_t kv_head) const {
    return joined_[row].select(1, heads_.heads + kv_head);
  }
  at::Tensor Value(std::int64_t row, std::int64_t kv_head) const {
    return joined_[row].select(1, heads_.heads + heads_.kv_heads + kv_head);
  }
  Head In(at::ScalarType type, std::int64_t row, std::int64_t kv_head) const {
    return {Query(row, kv_head).to(type), Key(row, kv_head).to(type), Value(row, kv_head).to(type)};
  }
  std::int64_t Group() const { return heads_.heads / heads_.kv_heads; }

 private:
  const at::Tensor joined_;
  const AttentionHeads heads_;
};

// [rows, length, heads, head_dim] -> [group, length, head_dim] of one key head.
at::Tensor HeadsOf(const at::Tensor& array, const BatchShape& shape, const AttentionHeads& heads,
                   std::int64_t row, std::int64_t kv_head) {
  const std::int64_t group = heads.heads / heads.kv_heads;
  return array.view({shape.rows, shape.length, heads.heads, heads.head_dim})[row]
      .narrow(1, kv_head * group, group)
      .transpose(0, 1);
}

// Scaled scores [group, length, length], minus infinity above the diagonal.
at::Tensor Scores(const Head& head, double scale) {
  const std::int64_t length = head.key.size(0);
  at::Tensor scores = at::matmul(head.query, head.key.t()).mul_(scale);
  const at::Tensor future =
      at::ones({length, length}, scores.options().dtype(at::kBool)).triu_(/*diagonal=*/1);
  return scores.masked_fill_(future, -std::numeric_limits<double>::infinity());
}

double ScaleOf(const AttentionHeads& heads) {
  return 1.0 / std::sqrt(static_cast<double>(heads.head_dim));
}

}  // namespace

void PlainAttention(const at::Tensor& qkv, const BatchShape& shape, const AttentionHeads& heads,
                    at::Tensor& out, at::Tensor& lse) {
  const HeadViews views(qkv, shape, heads);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t kv = 0; kv < heads.kv_heads; ++kv) {
      const Head head = views.In(WideType(qkv.scalar_type()), row, kv);
      const at::Tensor scores = Scores(head, ScaleOf(heads));
      const at::Tensor sums = at::logsumexp(scores, {-1});
      lse[row].narrow(0, kv * views.Group(), views.Group()).copy_(sums);
      const at::Tensor weights = (scores - sums.unsqueeze(-1)).exp_();
      HeadsOf(out, shape, heads, row, kv).copy_(at::matmul(weights, head.value));
    }
  }
}

void PlainAttentionBackward(const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& lse,
                            const at::Tensor& out_gradient, const BatchShape& shape,
                            const AttentionHeads& heads, at::Tensor& qkv_gradient) {
  const at::ScalarType wide = WideType(qkv.scalar_type());
  const HeadViews views(qkv, shape, heads), gradients(qkv_gradient, shape, heads);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t kv = 0; kv < heads.kv_heads; ++kv) {
      const Head head = views.In(wide, row, kv);
      const at::Tensor sums = lse[row].narrow(0, kv * views.Group(), views.Group());
      const at::Tensor weights = (Scores(head, ScaleOf(heads)) - sums.unsqueeze(-1)).exp_();
      const at::Tensor o = HeadsOf(out, shape, heads, row, kv).to(wide);
      const at::Tensor d = HeadsOf(out_gradient, shape, heads, row, kv).to(wide);
      const at::Tensor along = (o * d).sum(-1, /*keepdim=*/true);
      const at::Tensor score_gradient =
          (at::matmul(d, head.value.t()) - along).mul_(weights).mul_(ScaleOf(heads));
      gradients.Query(row, kv).copy_(at::matmul(score_gradient, head.key));
      gradients.Key(row, kv).copy_(at::matmul(score_gradient.transpose(1, 2), head.query).sum(0));
      gradients.Value(row, kv).copy_(at::matmul(weights.transpose(1, 2), d).sum(0));
    }
  }
}

}  // namespace muster
