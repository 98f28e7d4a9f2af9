#include "trainer/ops/cuda/math_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "trainer/ops/attention.h"
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

// Some queries of a document, and the keys that any of them sees.
struct Piece {
  std::int64_t begin, count;
  std::int64_t first_key, keys;
};

std::vector<Piece> PiecesOf(const Document& document, const AttentionHeads& heads) {
  std::vector<Piece> pieces;
  for (std::int64_t begin = 0; begin < document.length; begin += op::kMathAttentionQueries) {
    const std::int64_t count = std::min(op::kMathAttentionQueries, document.length - begin);
    const std::int64_t oldest = heads.window > 0 ? begin - heads.window + 1 : 0;
    const std::int64_t first = std::max<std::int64_t>(0, oldest);
    pieces.push_back({begin, count, first, begin + count - first});
  }
  return pieces;
}

// Scaled and capped scores [group, queries, keys], minus infinity for what a query does not see.
at::Tensor Scores(const Head& head, const Piece& piece, const AttentionHeads& heads) {
  const at::Tensor query = head.query.narrow(1, piece.begin, piece.count);
  const at::Tensor key = head.key.narrow(0, piece.first_key, piece.keys);
  at::Tensor scores = at::matmul(query, key.t()).mul_(heads.score_scale());
  if (heads.cap != 0) scores.div_(heads.cap).tanh_().mul_(heads.cap);
  const std::int64_t behind = piece.begin - piece.first_key;
  const auto seen = scores.options().dtype(at::kBool);
  at::Tensor unseen = at::ones({piece.count, piece.keys}, seen).triu_(behind + 1);
  if (heads.window > 0) unseen.logical_or_(at::ones_like(unseen).tril_(behind - heads.window));
  return scores.masked_fill_(unseen, -std::numeric_limits<double>::infinity());
}

// Adds to the gradients of key and value [length, head_dim] W, and gives that of the queries.
at::Tensor PieceBackward(const Head& head, const Piece& piece, const AttentionHeads& heads,
                         const at::Tensor& sums, const at::Tensor& o, const at::Tensor& d,
                         at::Tensor& key_gradient, at::Tensor& value_gradient) {
  const auto of_keys = [&](const at::Tensor& x) {
    return x.narrow(0, piece.first_key, piece.keys);
  };
  at::Tensor scores = Scores(head, piece, heads);
  const at::Tensor weights = (scores - sums.unsqueeze(-1)).exp_();
  const at::Tensor along = (o * d).sum(-1, /*keepdim=*/true);
  at::Tensor score_gradient = at::matmul(d, of_keys(head.value).t()).sub_(along).mul_(weights);
  score_gradient.mul_(heads.score_scale());
  if (heads.cap != 0) {
    // The slope 1 - tanh^2. What is not seen has no gradient, and minus infinity no slope.
    score_gradient.mul_(scores.div_(heads.cap).clamp_min_(-1).square_().neg_().add_(1));
  }
  const at::Tensor query = head.query.narrow(1, piece.begin, piece.count);
  of_keys(key_gradient).add_(at::matmul(score_gradient.transpose(1, 2), query).sum(0));
  of_keys(value_gradient).add_(at::matmul(weights.transpose(1, 2), d).sum(0));
  return at::matmul(score_gradient, of_keys(head.key));
}

}  // namespace

void MathAttention(const at::Tensor& qkv, const BatchShape& shape, const AttentionHeads& heads,
                   at::Tensor& out, at::Tensor& lse) {
  const HeadViews views(qkv, heads);
  for (const Document& document : DocumentsOf(shape)) {
    for (std::int64_t kv = 0; kv < heads.kv_heads; ++kv) {
      const Head head = views.In(WideType(qkv.scalar_type()), document, kv);
      const at::Tensor all_sums = SumsOf(lse, heads, document, kv);
      const at::Tensor mixed = HeadsOf(out, heads, document, kv);
      for (const Piece& piece : PiecesOf(document, heads)) {
        at::Tensor scores = Scores(head, piece, heads);
        const at::Tensor sums = at::logsumexp(scores, {-1});
        all_sums.narrow(1, piece.begin, piece.count).copy_(sums);
        const at::Tensor weights = scores.sub_(sums.unsqueeze(-1)).exp_();
        const at::Tensor value = head.value.narrow(0, piece.first_key, piece.keys);
        mixed.narrow(1, piece.begin, piece.count).copy_(at::matmul(weights, value));
      }
    }
  }
}

void MathAttentionBackward(const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& lse,
                           const at::Tensor& out_gradient, const BatchShape& shape,
                           const AttentionHeads& heads, at::Tensor& qkv_gradient) {
  const at::ScalarType wide = WideType(qkv.scalar_type());
  const HeadViews views(qkv, heads), gradients(qkv_gradient, heads);
  for (const Document& document : DocumentsOf(shape)) {
    for (std::int64_t kv = 0; kv < heads.kv_heads; ++kv) {
      const Head head = views.In(wide, document, kv);
      const at::Tensor sums = SumsOf(lse, heads, document, kv);
      const at::Tensor o = HeadsOf(out, heads, document, kv);
      const at::Tensor d = HeadsOf(out_gradient, heads, document, kv);
      at::Tensor key_gradient = at::zeros_like(head.key);
      at::Tensor value_gradient = at::zeros_like(head.value);
      for (const Piece& piece : PiecesOf(document, heads)) {
        const auto some = [&](const at::Tensor& x) {
          return x.narrow(1, piece.begin, piece.count);
        };
        some(gradients.Query(document, kv))
            .copy_(PieceBackward(head, piece, heads, some(sums), some(o).to(wide), some(d).to(wide),
                                 key_gradient, value_gradient));
      }
      gradients.Key(document, kv).copy_(key_gradient);
      gradients.Value(document, kv).copy_(value_gradient);
    }
  }
}

}  // namespace muster
