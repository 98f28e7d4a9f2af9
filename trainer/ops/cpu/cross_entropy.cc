#include "trainer/ops/cpu/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trainer/core/vector_clones.h"
#include "trainer/core/vector_math.h"

namespace muster {
namespace {

// Words whose exponentials are taken relative to one maximum; they stay in the first-level cache.
constexpr std::int64_t kBlock = 1024;

// A NaN is passed over here and comes through in the sum.
template <typename T>
MUSTER_INLINE Wide<T> Maximum(const T* values, std::int64_t count, Wide<T> least) {
  Wide<T> lanes[kLanes];
  for (Wide<T>& lane : lanes) lane = least;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const Wide<T> value = Load(values[i + l]);
      lanes[l] = value > lanes[l] ? value : lanes[l];
    }
  }
  for (; i < count; ++i) lanes[0] = std::max(lanes[0], Wide<T>{Load(values[i])});
  return *std::max_element(lanes, lanes + kLanes);
}

// Exponentials relative to the maximum seen when a block was read.
template <typename Real>
struct Softmax {
  std::vector<Real> powers;   // [width]
  std::vector<Real> maximum;  // by block
  double sum = 0;             // relative to the last maximum
};

template <typename T>
MUSTER_INLINE Wide<T> Exponentials(const T* __restrict values, Wide<T> maximum,
                                   Wide<T>* __restrict powers, std::int64_t count) {
  return SumOver<Wide<T>>(count, [=](std::int64_t i) {
    const Wide<T> power = Exp(Load(values[i]) - maximum);
    powers[i] = power;
    return power;
  });
}

template <typename T>
MUSTER_INLINE void ReadRow(const T* __restrict logits, std::int64_t width,
                           Softmax<Wide<T>>* softmax) {
  using Real = Wide<T>;
  Real maximum = -std::numeric_limits<Real>::infinity();
  double sum = 0;
  for (std::int64_t at = 0, block = 0; at < width; at += kBlock, ++block) {
    const std::int64_t count = std::min(kBlock, width - at);
    const T* __restrict from = logits + at;
    Real* __restrict powers = softmax->powers.data() + at;
    const Real before = maximum;
    maximum = Maximum(from, count, maximum);
    if (maximum > before) sum *= std::exp(static_cast<double>(before) - maximum);
    sum += Exponentials(from, maximum, powers, count);
    softmax->maximum[static_cast<std::size_t>(block)] = maximum;
  }
  softmax->sum = sum;
}

template <typename T>
MUSTER_INLINE void WriteGradient(const Softmax<Wide<T>>& softmax, std::int64_t width, double scale,
                                 T* __restrict gradient) {
  using Real = Wide<T>;
  const std::int64_t last = (width - 1) / kBlock;
  for (std::int64_t at = 0, block = 0; at < width; at += kBlock, ++block) {
    const std::int64_t count = std::min(kBlock, width - at);
    const Real* __restrict powers = softmax.powers.data() + at;
    T* __restrict to = gradient + at;
    const double behind = static_cast<double>(softmax.maximum[static_cast<std::size_t>(block)]) -
                          softmax.maximum[static_cast<std::size_t>(last)];
    const Real factor = static_cast<Real>(std::exp(behind) / softmax.sum * scale);
    for (std::int64_t i = 0; i < count; ++i) Store(&to[i], powers[i] * factor);
  }
}

template <typename T>
MUSTER_INLINE void Rows(const CrossEntropyRows<T>& c, std::int64_t begin, std::int64_t end) {
  using Real = Wide<T>;
  Softmax<Real> softmax;
  softmax.powers.resize(static_cast<std::size_t>(c.width));
  softmax.maximum.resize(static_cast<std::size_t>((c.width + kBlock - 1) / kBlock));
  for (std::int64_t row = begin; row < end; ++row) {
    T* logits = c.logits + row * c.width;
    const std::int64_t label = c.labels[row];
    if (label < 0) {
      std::fill_n(logits, c.width, T{});
      c.losses[row] = 0;
      continue;
    }
    ReadRow(logits, c.width, &softmax);
    const double distance = static_cast<double>(Load(logits[label])) - softmax.maximum.back();
    c.losses[row] = std::log(softmax.sum) - distance;
    WriteGradient(softmax, c.width, c.scale, logits);
    const double probability = std::exp(distance) / softmax.sum;
    Store(&logits[label], (probability - 1.0) * c.scale);
  }
}

}  // namespace

MUSTER_ROWS_KERNEL(CrossEntropy, CrossEntropyRows, Rows)

}  // namespace muster
