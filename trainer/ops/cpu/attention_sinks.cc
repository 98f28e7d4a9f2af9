#include "trainer/ops/cpu/attention_sinks.h"

#include <algorithm>
#include <cmath>

#include "trainer/core/convert.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster {
namespace {

// Calls f(sum, out) for each token of a head: where its logarithm is, and the first element of its
// output among all of attention's.
template <typename F>
void OverTokens(const std::vector<std::int64_t>& bounds, const AttentionHeads& heads,
                std::int64_t head, const F& f) {
  const std::int64_t width = heads.heads * heads.head_dim;
  for (std::size_t d = 0; d + 1 < bounds.size(); ++d) {
    const std::int64_t begin = bounds[d], length = bounds[d + 1] - begin;
    for (std::int64_t t = 0; t < length; ++t)
      f(begin * heads.heads + head * length + t, (begin + t) * width + head * heads.head_dim);
  }
}

// Over the heads: one thread has all of a head's tokens.
template <typename F>
void OverHeads(const AttentionHeads& heads, std::int64_t tokens, const F& f) {
  OverRows(heads.heads, tokens * heads.head_dim, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = begin; head < end; ++head) f(head);
  });
}

// What a sink takes of the sum of exponentials, it takes of the output as well.
template <typename T>
void CountSinksOf(const op::Attention& a, const std::vector<std::int64_t>& bounds) {
  using Real = Wide<T>;
  OverHeads(a.heads, a.shape.tokens(), [&](std::int64_t head) {
    const Real sink = Load(a.sinks.data<T>()[head]);
    OverTokens(bounds, a.heads, head, [&](std::int64_t at, std::int64_t out) {
      Real& sum = a.lse.data<Real>()[at];
      const Real larger = std::max(sum, sink);
      const Real with_sink = larger + std::log(std::exp(sum - larger) + std::exp(sink - larger));
      const Real share = std::exp(sum - with_sink);
      sum = with_sink;
      T* const values = a.out.data<T>() + out;
      for (std::int64_t i = 0; i < a.heads.head_dim; ++i)
        Store(&values[i], share * Load(values[i]));
    });
  });
}

// A sink's value is zero: all that a larger share of it does is to take from the others.
template <typename T>
void SinkGradientsOf(const op::AttentionBackward& a, const std::vector<std::int64_t>& bounds) {
  using Real = Wide<T>;
  std::vector<Real> gradients(static_cast<std::size_t>(a.heads.heads));
  OverHeads(a.heads, a.shape.tokens(), [&](std::int64_t head) {
    const Real sink = Load(a.sinks.data<T>()[head]);
    Real sum = 0;
    OverTokens(bounds, a.heads, head, [&](std::int64_t at, std::int64_t out) {
      const T* const values = a.out.data<T>() + out;
      const T* const gradient = a.out_gradient.data<T>() + out;
      Real along = 0;
      for (std::int64_t i = 0; i < a.heads.head_dim; ++i)
        along += Load(values[i]) * Load(gradient[i]);
      sum -= std::exp(sink - a.lse.data<Real>()[at]) * along;
    });
    gradients[static_cast<std::size_t>(head)] = sum;
  });
  const GradientArray& target = a.sink_gradients;
  Convert(gradients.data(), WideType(a.qkv.type()), target.array.data(), target.array.type(),
          a.heads.heads, target.add);
}

}  // namespace

void CountSinks(const op::Attention& a, const std::vector<std::int64_t>& bounds) {
  WithElement(a.qkv.type(), [&]<typename T>(T*) { CountSinksOf<T>(a, bounds); });
}

void WriteSinkGradients(const op::AttentionBackward& a, const std::vector<std::int64_t>& bounds) {
  WithElement(a.qkv.type(), [&]<typename T>(T*) { SinkGradientsOf<T>(a, bounds); });
}

}  // namespace muster
