#include "trainer/ops/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "trainer/core/vector_math.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster::op {
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
  std::vector<Real> capped;   // [width]; empty: logits have no cap
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
MUSTER_INLINE void Cap(const T* __restrict logits, Wide<T> cap, Wide<T>* __restrict capped,
                       std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) capped[i] = cap * Tanh(Load(logits[i]) / cap);
}

// What a cap leaves of a gradient.
template <typename Real>
MUSTER_INLINE Real SlopeAt(Real capped, Real cap) {
  const Real tangent = capped / cap;
  return Real(1) - tangent * tangent;
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
                                 Wide<T> cap, T* __restrict gradient) {
  using Real = Wide<T>;
  const std::int64_t last = (width - 1) / kBlock;
  for (std::int64_t at = 0, block = 0; at < width; at += kBlock, ++block) {
    const std::int64_t count = std::min(kBlock, width - at);
    const Real* __restrict powers = softmax.powers.data() + at;
    T* __restrict to = gradient + at;
    const double behind = static_cast<double>(softmax.maximum[static_cast<std::size_t>(block)]) -
                          softmax.maximum[static_cast<std::size_t>(last)];
    const Real factor = static_cast<Real>(std::exp(behind) / softmax.sum * scale);
    if (softmax.capped.empty()) {
      for (std::int64_t i = 0; i < count; ++i) Store(&to[i], powers[i] * factor);
    } else {
      const Real* __restrict capped = softmax.capped.data() + at;
      for (std::int64_t i = 0; i < count; ++i) {
        Store(&to[i], powers[i] * factor * SlopeAt(capped[i], cap));
      }
    }
  }
}

// `losses` [n], written, unscaled.
MUSTER_VECTOR_CLONES
void Rows(const CrossEntropy& c, double* losses, std::int64_t begin, std::int64_t end) {
  WithElement(c.logits.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    using Real = Wide<T>;
    const std::int64_t width = c.logits.width();
    Softmax<Real> softmax;
    softmax.powers.resize(static_cast<std::size_t>(width));
    softmax.maximum.resize(static_cast<std::size_t>((width + kBlock - 1) / kBlock));
    const Real cap = static_cast<Real>(c.cap);
    if (cap != 0) softmax.capped.resize(static_cast<std::size_t>(width));
    for (std::int64_t row = begin; row < end; ++row) {
      T* logits = c.logits.data<T>() + row * width;
      const std::int64_t label = c.labels.data<std::int64_t>()[row];
      if (label < 0) {
        std::fill_n(logits, width, T{});
        losses[row] = 0;
        continue;
      }
      double at_label = Load(logits[label]), slope = 1;
      if (cap != 0) {
        Real* const capped = softmax.capped.data();
        Cap(logits, cap, capped, width);
        ReadRow(capped, width, &softmax);
        at_label = capped[label];
        slope = SlopeAt<double>(at_label, c.cap);
      } else {
        ReadRow(logits, width, &softmax);
      }
      const double distance = at_label - softmax.maximum.back();
      losses[row] = std::log(softmax.sum) - distance;
      WriteGradient(softmax, width, c.scale, cap, logits);
      const double probability = std::exp(distance) / softmax.sum;
      Store(&logits[label], (probability - 1.0) * c.scale * slope);
    }
  });
}

}  // namespace

// Each row is read from memory once and written once: the exponentials of a row stay in a scratch
// array of its width while the maximum is still growing.
void RunOnCpu(const CrossEntropy& c) {
  const std::int64_t width = c.logits.width();
  const std::span labels(c.labels.data<std::int64_t>(), static_cast<std::size_t>(c.labels.count()));
  if (std::any_of(labels.begin(), labels.end(), [&](auto label) { return label >= width; })) {
    Refuse("a label is beyond the " + std::to_string(width) + " words of the vocabulary");
  }
  std::vector<double> losses(labels.size());
  OverRows(c.logits.rows(), width,
           [&](auto begin, auto end) { Rows(c, losses.data(), begin, end); });
  double sum = 0;
  for (const double row : losses) sum += row;
  *c.loss.data<double>() += sum;
}

}  // namespace muster::op

template void muster::CpuKernel<muster::op::CrossEntropy>(const void*);
