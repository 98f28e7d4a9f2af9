// The flat operations of CpuOps, over raw memory: AdamW, sums, conversions, allocation.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "trainer/ops/adamw.h"
#include "trainer/ops/convert.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/device_ops.h"
#include "trainer/ops/sum_of_squares.h"

namespace muster {
namespace {

struct NamedType {
  at::ScalarType scalar;
  ElementType element;
};
constexpr NamedType kTypes[] = {{at::kDouble, ElementType::kFloat64},
                                {at::kFloat, ElementType::kFloat32},
                                {at::kBFloat16, ElementType::kBFloat16},
                                {at::kHalf, ElementType::kFloat16}};
constexpr NamedType kDouble = kTypes[0], kFloat = kTypes[1], kBFloat16 = kTypes[2],
                    kHalf = kTypes[3];

struct State {
  NamedType weight_type, moment_type, gradient_type, low_precision_type;
  at::Tensor weight, exp_avg, exp_avg_sq, gradient, low_precision;

  State(std::int64_t count, NamedType weight, NamedType moment, NamedType gradient,
        NamedType low_precision)
      : weight_type(weight),
        moment_type(moment),
        gradient_type(gradient),
        low_precision_type(low_precision),
        weight(at::randn({count}, at::kDouble).to(weight.scalar)),
        exp_avg(at::zeros({count}, moment.scalar)),
        exp_avg_sq(at::zeros({count}, moment.scalar)),
        gradient(at::randn({count}, at::kDouble).to(gradient.scalar)),
        low_precision(at::zeros({count}, low_precision.scalar)) {}

  OptimizerArrays arrays() const {
    return {.weight = weight.data_ptr(),
            .exp_avg = exp_avg.data_ptr(),
            .exp_avg_sq = exp_avg_sq.data_ptr(),
            .gradient = gradient.data_ptr(),
            .low_precision = low_precision.data_ptr(),
            .weight_type = weight_type.element,
            .moment_type = moment_type.element,
            .gradient_type = gradient_type.element,
            .low_precision_type = low_precision_type.element,
            .count = weight.numel()};
  }
};

constexpr AdamWOptions kOptions{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1};

// torch.optim.AdamW's single-tensor steps in fp64, each kept array rounded to its type.
void StepByDefinition(State& s, const AdamWStep& step) {
  const double t = static_cast<double>(step.number);
  const at::Tensor g = s.gradient.to(at::kDouble) * step.gradient_scale;
  at::Tensor w = s.weight.to(at::kDouble) * (1 - step.lr * kOptions.weight_decay);
  at::Tensor m = s.exp_avg.to(at::kDouble).lerp(g, 1 - kOptions.beta1);
  at::Tensor v = s.exp_avg_sq.to(at::kDouble) * kOptions.beta2 + (1 - kOptions.beta2) * g * g;
  const double root = std::sqrt(1 - std::pow(kOptions.beta2, t));
  w -= step.lr / (1 - std::pow(kOptions.beta1, t)) * m / (v.sqrt() / root + kOptions.eps);
  s.weight = w.to(s.weight_type.scalar);
  s.exp_avg = m.to(s.moment_type.scalar);
  s.exp_avg_sq = v.to(s.moment_type.scalar);
}

double Distance(const at::Tensor& got, const at::Tensor& want) {
  return ((got.to(at::kDouble) - want.to(at::kDouble)).norm() / want.to(at::kDouble).norm())
      .item<double>();
}

struct Combination {
  NamedType weight, moment, gradient, low_precision;
  double tolerance;
};
class AdamWTypes : public testing::TestWithParam<Combination> {};

TEST_P(AdamWTypes, FollowsTorchsDefinition) {
  at::manual_seed(3);
  const Combination& c = GetParam();
  State got(2500, c.weight, c.moment, c.gradient, c.low_precision);
  State want = got;
  const auto ops = MakeCpuOps();
  for (int t = 1; t <= 4; ++t) {
    const AdamWStep step{.number = t, .lr = 0.01, .gradient_scale = 0.5};
    StepByDefinition(want, step);
    ops->Run(op::AdamW{got.arrays(), kOptions, step});
    EXPECT_LE(Distance(got.weight, want.weight), c.tolerance) << t;
    EXPECT_LE(Distance(got.exp_avg, want.exp_avg), c.tolerance) << t;
    EXPECT_LE(Distance(got.exp_avg_sq, want.exp_avg_sq), c.tolerance) << t;
    EXPECT_TRUE(at::equal(got.low_precision, got.weight.to(c.low_precision.scalar))) << t;
    got.gradient.normal_();
    want.gradient = got.gradient;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, AdamWTypes,
    testing::Values(Combination{kFloat, kFloat, kFloat, kBFloat16, 1e-6},
                    Combination{kFloat, kFloat, kFloat, kHalf, 1e-6},
                    Combination{kFloat, kFloat, kBFloat16, kFloat, 1e-6},
                    Combination{kDouble, kDouble, kDouble, kDouble, 1e-14},
                    Combination{kDouble, kDouble, kFloat, kBFloat16, 1e-14},
                    Combination{kFloat, kDouble, kFloat, kHalf, 1e-6},
                    // One rounding may fall to the other side in a few elements.
                    Combination{kFloat, kBFloat16, kFloat, kBFloat16, 1e-3},
                    Combination{kBFloat16, kFloat, kFloat, kBFloat16, 1e-3},
                    Combination{kBFloat16, kBFloat16, kBFloat16, kBFloat16, 1e-3}));

TEST(CpuFlatOps, AdamWKeepsNoShadowWhereNoneIsWanted) {
  State state(100, kFloat, kFloat, kFloat, kBFloat16);
  OptimizerArrays arrays = state.arrays();
  arrays.low_precision = nullptr;
  const at::Tensor before = state.weight.clone();
  MakeCpuOps()->Run(op::AdamW{arrays, kOptions, {.number = 1, .lr = 0.1}});
  EXPECT_FALSE(at::equal(state.weight, before));
  EXPECT_EQ(state.low_precision.abs().max().item<double>(), 0);
}

TEST(CpuFlatOps, BitsDoNotDependOnThreads) {
  at::manual_seed(4);
  const int before = at::get_num_threads();
  const State start(200'003, kFloat, kFloat, kFloat, kBFloat16);
  at::Tensor first_weight, first_sum;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    State state = start;
    for (at::Tensor* array :
         {&state.weight, &state.exp_avg, &state.exp_avg_sq, &state.low_precision}) {
      *array = array->clone();
    }
    const auto ops = MakeCpuOps();
    ops->Run(op::AdamW{state.arrays(), kOptions, {.number = 1, .lr = 0.1}});
    at::Tensor sum = at::zeros({1}, at::kDouble);
    ops->Run(op::SumOfSquares{state.weight.data_ptr(), ElementType::kFloat32, 200'003, sum});
    if (threads == 1) {
      first_weight = state.weight;
      first_sum = sum;
    }
    EXPECT_TRUE(at::equal(state.weight, first_weight)) << threads;
    EXPECT_TRUE(at::equal(sum, first_sum)) << threads;
  }
  at::set_num_threads(before);
}

TEST(CpuFlatOps, SumOfSquaresAddsEveryElementToWhatIsThere) {
  for (const NamedType type : kTypes) {
    const at::Tensor values = (at::arange(140'001) % 7 - 3).to(type.scalar);
    at::Tensor sum = at::full({1}, 5.0, at::kDouble);
    MakeCpuOps()->Run(op::SumOfSquares{values.data_ptr(), type.element, values.numel(), sum});
    EXPECT_EQ(sum.item<double>(), 5 + values.to(at::kDouble).square().sum().item<double>());
  }
}

TEST(CpuFlatOps, SumOfSquaresLetsNanThrough) {
  const at::Tensor values = at::ones({70'000});
  values[69'999] = std::numeric_limits<float>::quiet_NaN();
  at::Tensor sum = at::zeros({1}, at::kDouble);
  MakeCpuOps()->Run(op::SumOfSquares{values.data_ptr(), ElementType::kFloat32, 70'000, sum});
  EXPECT_TRUE(std::isnan(sum.item<double>()));
}

// Ordinary and subnormal numbers, ties, overflow, infinities and NaN of all types.
at::Tensor ManyValues() {
  const at::Tensor mantissas = at::randn({4099}, at::kDouble);
  const at::Tensor exponents = at::randint(-160, 150, {4099}).to(at::kDouble);
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor special = at::tensor(
      {0.0, -0.0, 1.00390625, 1.01171875, 65504.0, 65519.0, 65520.0, 3.4e38, 1e300, 1e-300, 6e-8,
       2.98023223876953125e-8, 9e-41, inf, -inf, std::numeric_limits<double>::quiet_NaN()},
      at::kDouble);
  return at::cat({mantissas * at::exp2(exponents), mantissas, special, -special});
}

TEST(CpuFlatOps, ConvertRoundsLikeAten) {
  at::manual_seed(6);
  const at::Tensor values = ManyValues();
  for (const NamedType from : kTypes) {
    for (const NamedType to : kTypes) {
      const at::Tensor source = values.to(from.scalar);
      const at::Tensor target = at::zeros({values.numel()}, to.scalar);
      MakeCpuOps()->Run(op::Convert{source.data_ptr(), from.element, target.data_ptr(), to.element,
                                    values.numel(), false});
      EXPECT_TRUE(at::allclose(target, source.to(to.scalar), 0, 0, true))
          << from.scalar << " to " << to.scalar;
    }
  }
}

// fp64 would reach bf16 by way of fp32 as a tie, and be rounded the wrong way.
TEST(CpuFlatOps, ConvertRoundsDoublesOnce) {
  const double values[] = {1.00390625 + 1e-12, -(1.00390625 + 1e-12), 1.01171875 - 1e-12};
  const double rounded[] = {1.0078125, -1.0078125, 1.0078125};
  const at::Tensor target = at::zeros({3}, at::kBFloat16);
  MakeCpuOps()->Run(op::Convert{values, ElementType::kFloat64, target.data_ptr(),
                                ElementType::kBFloat16, 3, false});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(target[i].item<double>(), rounded[i]) << i;
}

TEST(CpuFlatOps, ConvertAddsWithOneRounding) {
  at::manual_seed(8);
  for (const NamedType from : kTypes) {
    for (const NamedType to : kTypes) {
      const at::Tensor source = at::randn({1001}, at::kDouble).to(from.scalar);
      const at::Tensor before = at::randn({1001}, at::kDouble).to(to.scalar);
      const at::Tensor target = before.clone();
      MakeCpuOps()->Run(
          op::Convert{source.data_ptr(), from.element, target.data_ptr(), to.element, 1001, true});
      const bool wide = from.scalar == at::kDouble || to.scalar == at::kDouble;
      const at::ScalarType type = wide ? at::kDouble : at::kFloat;
      const at::Tensor exact = source.to(type) + before.to(type);
      if (wide && to.scalar != at::kDouble) {
        EXPECT_LE(Distance(target, exact), 4e-3) << to.scalar;
      } else {
        EXPECT_TRUE(at::equal(target, exact.to(to.scalar))) << from.scalar << " to " << to.scalar;
      }
    }
  }
}

TEST(CpuFlatOps, AllocatesZeroedPages) {
  const auto ops = MakeCpuOps();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{40} << 20}) {
    const at::Tensor memory = ops->Allocate(bytes);
    ASSERT_EQ(memory.nbytes(), bytes);
    if (bytes == 0) continue;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data_ptr()) % 4096, 0u);
    EXPECT_EQ(memory[0].item<int>(), 0);
    EXPECT_EQ(memory[static_cast<std::int64_t>(bytes) - 1].item<int>(), 0);
  }
}

TEST(CpuFlatOps, PagesThatAreNotTouchedCostNothing) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const at::Tensor memory = MakeCpuOps()->Allocate(kBytes);
  memory[0] = 1;
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident(kBytes / page);
  ASSERT_EQ(::mincore(memory.data_ptr(), kBytes, resident.data()), 0);
  const auto touched =
      std::count_if(resident.begin(), resident.end(), [](auto r) { return r & 1; });
  EXPECT_GE(touched, 1);
  EXPECT_LE(static_cast<std::size_t>(touched) * page, std::size_t{2} << 20);  // one large page
}

TEST(CpuFlatOps, DescribesItself) { EXPECT_FALSE(MakeCpuOps()->Describe().empty()); }

}  // namespace
}  // namespace muster
