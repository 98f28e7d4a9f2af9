#include "trainer/ops/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "trainer/ops/cpu/cpu_ops.h"

namespace muster {
namespace {

struct State {
  std::vector<float> weight, exp_avg, exp_avg_sq, gradient;
  std::vector<std::uint16_t> low_precision;

  explicit State(int count) : exp_avg(count), exp_avg_sq(count), low_precision(count) {
    for (int i = 0; i < count; ++i) {
      weight.push_back(std::sin(static_cast<float>(i)));
      gradient.push_back(std::cos(static_cast<float>(3 * i)));
    }
  }
  OptimizerArrays arrays() { return Range(0, std::ssize(weight)); }
  OptimizerArrays Range(std::int64_t begin, std::int64_t end) {
    return {.weight = weight.data() + begin,
            .exp_avg = exp_avg.data() + begin,
            .exp_avg_sq = exp_avg_sq.data() + begin,
            .gradient = gradient.data() + begin,
            .low_precision = low_precision.data() + begin,
            .count = end - begin};
  }
};

void Update(const OptimizerArrays& arrays, const AdamWOptions& options, const AdamWStep& step) {
  MakeCpuOps()->Run(op::AdamW{arrays, options, step});
}

TEST(AdamW, MatchesTheDefinitionInDouble) {
  State state(101);
  const AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  std::vector<double> w(state.weight.begin(), state.weight.end()), m(101), v(101);
  for (int t = 1; t <= 5; ++t) {
    Update(state.arrays(), options, {.number = t, .lr = 0.01, .gradient_scale = 0.5});
    for (int i = 0; i < 101; ++i) {
      const double g = 0.5 * static_cast<double>(state.gradient[i]);
      w[i] *= 1 - 0.01 * 0.1;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      const double m_hat = m[i] / (1 - std::pow(0.9, t));
      const double v_hat = v[i] / (1 - std::pow(0.95, t));
      w[i] -= 0.01 * m_hat / (std::sqrt(v_hat) + 1e-8);
      EXPECT_NEAR(state.weight[i], w[i], 1e-6);
    }
  }
}

TEST(AdamW, AnyCutGivesTheSameBits) {
  State whole(3000), cut(3000);
  const AdamWOptions options;
  const AdamWStep step{.number = 3, .lr = 1e-3};
  Update(whole.arrays(), options, step);
  Update(cut.Range(0, 37), options, step);
  Update(cut.Range(37, 1064), options, step);
  Update(cut.Range(1064, 3000), options, step);
  EXPECT_EQ(whole.weight, cut.weight);
  EXPECT_EQ(whole.exp_avg, cut.exp_avg);
  EXPECT_EQ(whole.exp_avg_sq, cut.exp_avg_sq);
  EXPECT_EQ(whole.low_precision, cut.low_precision);
}

TEST(AdamW, FromOneSlotIntoAnotherGivesTheBitsOfInPlace) {
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    State in_place(3000);
    State old(3000);
    // The first update fills the moments; as bf16 the arrays hold as many elements and half of
    // their bytes.
    const auto in_type = [type](State& state) {
      OptimizerArrays arrays = state.arrays();
      arrays.weight_type = arrays.moment_type = type;
      return arrays;
    };
    const AdamWOptions options;
    Update(in_type(in_place), options, {.number = 1, .lr = 1e-3});
    Update(in_type(old), options, {.number = 1, .lr = 1e-3});
    const State before = old;
    State updated(3000);
    updated.weight.assign(3000, -7.0F);
    OptimizerArrays arrays = in_type(updated);
    arrays.old_weight = old.weight.data();
    arrays.old_exp_avg = old.exp_avg.data();
    arrays.old_exp_avg_sq = old.exp_avg_sq.data();

    Update(in_type(in_place), options, {.number = 2, .lr = 1e-3});
    Update(arrays, options, {.number = 2, .lr = 1e-3});
    const std::size_t bytes = 3000 * ElementSize(type);
    EXPECT_EQ(std::memcmp(in_place.weight.data(), updated.weight.data(), bytes), 0);
    EXPECT_EQ(std::memcmp(in_place.exp_avg.data(), updated.exp_avg.data(), bytes), 0);
    EXPECT_EQ(std::memcmp(in_place.exp_avg_sq.data(), updated.exp_avg_sq.data(), bytes), 0);
    EXPECT_EQ(in_place.low_precision, updated.low_precision);
    EXPECT_NE(in_place.low_precision, before.low_precision);
    EXPECT_EQ(std::memcmp(old.weight.data(), before.weight.data(), bytes), 0);
    EXPECT_EQ(std::memcmp(old.exp_avg.data(), before.exp_avg.data(), bytes), 0);
  }
}

// As a snapshot's slots are written where the compute type is that of the weights.
TEST(AdamW, FromACopyOfTheWeightsGivesTheBitsOfInPlace) {
  State in_place(3001);
  State old(3001);
  std::vector<float> copy = old.weight;
  for (int step = 1; step <= 2; ++step) {
    OptimizerArrays expected = in_place.arrays();
    expected.low_precision = nullptr;
    Update(expected, {}, {.number = step, .lr = 1e-3});
    State updated(3001);
    for (const auto& [begin, end] :
         {std::pair(0, 37), std::pair(37, 1064), std::pair(1064, 3001)}) {
      OptimizerArrays arrays = updated.Range(begin, end);
      arrays.old_weight = arrays.low_precision = copy.data() + begin;
      arrays.low_precision_type = ElementType::kFloat32;
      arrays.old_exp_avg = old.exp_avg.data() + begin;
      arrays.old_exp_avg_sq = old.exp_avg_sq.data() + begin;
      Update(arrays, {}, {.number = step, .lr = 1e-3});
    }
    EXPECT_EQ(in_place.weight, copy);
    EXPECT_EQ(in_place.weight, updated.weight);
    EXPECT_EQ(in_place.exp_avg, updated.exp_avg);
    EXPECT_EQ(in_place.exp_avg_sq, updated.exp_avg_sq);
    old = updated;
  }
}

TEST(AdamW, ZeroPaddingStaysZero) {
  State state(8);
  state.weight.assign(8, 0.0f);
  state.gradient.assign(8, 0.0f);
  Update(state.arrays(), {}, {.number = 1, .lr = 0.1});
  EXPECT_EQ(state.weight, std::vector<float>(8, 0.0f));
}

}  // namespace
}  // namespace muster
