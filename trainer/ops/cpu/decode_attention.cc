#include "trainer/ops/cpu/decode_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trainer/core/vector_math.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster {
namespace {

// scores[s] = query . key[s], scaled and capped; the largest of them.
template <typename T>
MUSTER_INLINE Wide<T> Score(const Wide<T>* query, const T* key, std::int64_t positions,
                            std::int64_t width, Wide<T> scale, Wide<T> cap, Wide<T>* scores) {
  Wide<T> largest = -std::numeric_limits<Wide<T>>::infinity();
  for (std::int64_t s = 0; s < positions; ++s) {
    const T* row = key + s * width;
    scores[s] = scale * SumOver<Wide<T>>(width, [=](std::int64_t i) MUSTER_INLINE_CALL {
                  return query[i] * Load(row[i]);
                });
    if (cap != 0) scores[s] = cap * Tanh(scores[s] / cap);
    largest = std::max(largest, scores[s]);
  }
  return largest;
}

// mixed = the values, weighed by the softmax of the scores; `sunk` is added to the exponentials'
// sum.
template <typename T>
MUSTER_INLINE void Mix(const Wide<T>* scores, Wide<T> largest, Wide<T> sunk, const T* value,
                       std::int64_t positions, std::int64_t width, T* mixed) {
  Wide<T> sums[kMaxDecodeHeadDim] = {};
  Wide<T> total = sunk;
  for (std::int64_t s = 0; s < positions; ++s) {
    const Wide<T> weight = Exp(scores[s] - largest);
    const T* row = value + s * width;
    total += weight;
    for (std::int64_t i = 0; i < width; ++i) sums[i] += weight * Load(row[i]);
  }
  for (std::int64_t i = 0; i < width; ++i) Store(mixed + i, sums[i] / total);
}

}  // namespace

MUSTER_VECTOR_CLONES
void DecodeAttend(const DecodeAttention& a, std::int64_t begin, std::int64_t end) {
  WithElement(a.type, [&]<typename T>(T*) MUSTER_INLINE_CALL {
    std::vector<Wide<T>> scores;
    const Wide<T> scale = a.scale > 0 ? static_cast<Wide<T>>(a.scale)
                                      : Wide<T>{1} / std::sqrt(static_cast<Wide<T>>(a.head_dim));
    Wide<T> query[kMaxDecodeHeadDim];
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const DecodeText& text = a.texts[static_cast<std::size_t>(unit / a.heads)];
      const std::int64_t head = unit % a.heads;
      const std::int64_t at = head / (a.heads / a.kv_heads) * text.head_stride;
      scores.resize(std::max<std::size_t>(scores.size(), static_cast<std::size_t>(text.positions)));
      const T* given = static_cast<const T*>(text.query) + head * a.head_dim;
      for (std::int64_t i = 0; i < a.head_dim; ++i) query[i] = Load(given[i]);
      Wide<T> largest = Score<T>(query, static_cast<const T*>(text.key) + at, text.positions,
                                 a.head_dim, scale, static_cast<Wide<T>>(a.cap), scores.data());
      Wide<T> sunk = 0;
      if (a.sinks != nullptr) {
        const Wide<T> sink = Load(static_cast<const T*>(a.sinks)[head]);
        largest = std::max(largest, sink);
        sunk = Exp(sink - largest);
      }
      Mix<T>(scores.data(), largest, sunk, static_cast<const T*>(text.value) + at, text.positions,
             a.head_dim, static_cast<T*>(text.mixed) + head * a.head_dim);
    }
  });
}

}  // namespace muster
