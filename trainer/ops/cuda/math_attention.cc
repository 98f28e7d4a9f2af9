#include "trainer/ops/cuda/math_attention.h"

#include <ATen/ATen.h>

#include <cstddef>
#include <limits>
#include <vector>

#include "trainer/ops/documents.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

// One key head of one document, in W. The query heads that share it are [group, length, head_dim].
struct Head {
  at::Tensor query, key, value;
};

// A run of tokens that see each other.
struct Document {
  std::int64_t begin, length;
};

std::vector<Document> DocumentsOf(const BatchShape& shape) {
  const std::vector<std::int64_t> bounds = DocumentBounds(shape);
  std::vector<Document> documents;
  for (std::size_t i = 1; i < bounds.size(); ++i) {
    documents.push_back({bounds[i - 1], bounds[i] - bounds[i - 1]});
  }
  return documents;
}

// The places of one key head and of its query heads in arrays of joined heads.
class HeadViews {
 public:
  HeadViews(const at::Tensor& joined, const AttentionHeads& heads)
      : joined_(joined.view({joined.size(0), heads.heads + 2 * heads.kv_heads, heads.head_dim})),
        heads_(heads) {}

  at::Tensor Query(const Document& document, std::int64_t kv_head) const {
    return Of(document).narrow(1, kv_head * Group(), Group()).transpose(0, 1);
  }
  at::Tensor Key(const Document& document, std::int64_t kv_head) const {
    return Of(document).select(1, heads_.heads + kv_head);
  }
  at::Tensor Value(const Document& document, std::int64_t kv_head) const {
    return Of(document).select(1, heads_.heads + heads_.kv_heads + kv_head);
  }
  Head In(at::ScalarType type, const Document& document, std::int64_t kv_head) const {
    return {Query(document, kv_head).to(type), Key(document, kv_head).to(type),
            Value(document, kv_head).to(type)};
  }
  std::int64_t Group() const { return heads_.heads / heads_.kv_heads; }

 private:
  at::Tensor Of(const Document& document) const {
    return joined_.narrow(0, document.begin, document.length);
  }

  const at::Tensor joined_;
  const AttentionHeads heads_;
};

// [N, heads * head_dim] -> [group, length, head_dim] of one key head.
at::Tensor HeadsOf(const at::Tensor& array, const AttentionHeads& heads, const Document& document,
                   std::int64_t kv_head) {
  const std::int64_t group = heads.heads / heads.kv_heads;
  return array.view({array.size(0), heads.heads, heads.head_dim})
      .narrow(0, document.begin, document.length)
      .narrow(1, kv_head * group, group)
      .transpose(0, 1);
}

// The logarithms lie as [heads, length] of each document, one behind the other.
at::Tensor SumsOf(const at::Tensor& lse, const AttentionHeads& heads, const Document& document,
                  std::int64_t kv_head) {
  const std::int64_t group = heads.heads / heads.kv_heads;
  return lse.view({-1})
      .narrow(0, document.begin * heads.heads, document.length * heads.heads)
      .view({heads.heads, document.length})
      .narrow(0, kv_head * group, group);
}

// Scaled scores [group, length, length], minus infinity for what a query does not see.
at::Tensor Scores(const Head& head, double scale, std::int64_t window) {
  const std::int64_t length = head.key.size(0);
  at::Tensor scores = at::matmul(head.query, head.key.t()).mul_(scale);
  at::Tensor unseen =
      at::ones({length, length}, scores.options().dtype(at::kBool)).triu_(/*diagonal=*/1);
  if (window > 0) unseen.logical_or_(at::ones_like(unseen).tril_(-window));
  return scores.masked_fill_(unseen, -std::numeric_limits<double>::infinity());
}

}  // namespace

void MathAttention(const at::Tensor& qkv, const BatchShape& shape, const AttentionHeads& heads,
                   at::Tensor& out, at::Tensor& lse) {
  const HeadViews views(qkv, heads);
  for (const Document& document : DocumentsOf(shape)) {
    for (std::int64_t kv = 0; kv < heads.kv_heads; ++kv) {
      const Head head = views.In(WideType(qkv.scalar_type()), document, kv);
      const at::Tensor scores = Scores(head, heads.score_scale(), heads.window);
      const at::Tensor sums = at::logsumexp(scores, {-1});
      SumsOf(lse, heads, document, kv).copy_(sums);
      const at::Tensor weights = (scores - sums.unsqueeze(-1)).exp_();
      HeadsOf(out, heads, document, kv).copy_(at::matmul(weights, head.value));
    }
  }
}

void MathAttentionBackward(const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& lse,
                           const at::Tensor& out_gradient, const BatchShape& shape,
                           const AttentionHeads& heads, at::Tensor& qkv_gradient) {
  const at::ScalarType wide = WideType(qkv.scalar_type());
  const double scale = heads.score_scale();
  const HeadViews views(qkv, heads), gradients(qkv_gradient, heads);
  for (const Document& document : DocumentsOf(shape)) {
    for (std::int64_t kv = 0; kv < heads.kv_heads; ++kv) {
      const Head head = views.In(wide, document, kv);
      const at::Tensor sums = SumsOf(lse, heads, document, kv);
      const at::Tensor weights = (Scores(head, scale, heads.window) - sums.unsqueeze(-1)).exp_();
      const at::Tensor o = HeadsOf(out, heads, document, kv).to(wide);
      const at::Tensor d = HeadsOf(out_gradient, heads, document, kv).to(wide);
      const at::Tensor along = (o * d).sum(-1, /*keepdim=*/true);
      const at::Tensor score_gradient =
          (at::matmul(d, head.value.t()) - along).mul_(weights).mul_(scale);
      gradients.Query(document, kv).copy_(at::matmul(score_gradient, head.key));
      gradients.Key(document, kv)
          .copy_(at::matmul(score_gradient.transpose(1, 2), head.query).sum(0));
      gradients.Value(document, kv).copy_(at::matmul(weights.transpose(1, 2), d).sum(0));
    }
  }
}

}  // namespace muster
