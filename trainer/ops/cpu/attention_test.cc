#include "trainer/ops/cpu/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "trainer/ops/cpu/attention_paths.h"

namespace muster {
namespace {

constexpr std::int64_t kLengths[] = {1,  2,  3,  15, 16,  17,  31,  32,
                                     33, 63, 64, 65, 127, 128, 130, 257};

// The index of one element of the position-major arrays below.
std::size_t At(std::int64_t position, std::int64_t stride, std::int64_t head, std::int64_t dim,
               std::int64_t d) {
  return static_cast<std::size_t>(position * stride + head * dim + d);
}

// Attention from its definition, in double, on packed arrays.
struct Reference {
  AttentionShape shape;
  std::vector<std::int64_t> bounds;  // of the documents
  std::vector<double> query, key, value, out_gradient;
  std::vector<double> out, lse, query_gradient, key_gradient, value_gradient;

  std::int64_t query_stride() const { return shape.heads * shape.head_dim; }
  std::int64_t key_stride() const { return shape.kv_heads * shape.head_dim; }

  // Numbers that bf16 and fp16 hold exactly, so that one reference serves all element types.
  Reference(const AttentionShape& s, double query_size) : shape(s) {
    for (std::int64_t d = 0; d <= shape.batch; ++d) {
      bounds.push_back(shape.bounds == nullptr ? d * shape.length : shape.bounds[d]);
    }
    std::mt19937 random(17);
    const auto fill = [&](std::vector<double>& to, std::int64_t stride, double size) {
      to.resize(static_cast<std::size_t>(positions() * stride));
      std::uniform_int_distribution<int> step(-64, 64);
      for (double& x : to) x = size * step(random) / 32;
    };
    fill(query, query_stride(), query_size);
    fill(key, key_stride(), 1);
    fill(value, key_stride(), 1);
    fill(out_gradient, query_stride(), 1);
    Compute();
  }

  std::int64_t positions() const { return bounds.back(); }

  void Compute() {
    out.assign(query.size(), 0);
    query_gradient.assign(query.size(), 0);
    key_gradient.assign(key.size(), 0);
    value_gradient.assign(key.size(), 0);
    lse.assign(static_cast<std::size_t>(positions() * shape.heads), 0);
    for (std::int64_t d = 0; d < shape.batch; ++d) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        for (std::int64_t i = 0; i < bounds[d + 1] - bounds[d]; ++i) Row(d, h, i);
      }
    }
  }

 private:
  // Query i of a document and the keys that it sees, from `first` on.
  void Row(std::int64_t document, std::int64_t h, std::int64_t i) {
    const std::int64_t dim = shape.head_dim, kv = h / (shape.heads / shape.kv_heads);
    const std::int64_t begin = bounds[document], length = bounds[document + 1] - begin;
    const std::int64_t first =
        shape.window == 0 ? 0 : std::max<std::int64_t>(0, i - shape.window + 1);
    const double* q = &query[At(begin + i, query_stride(), h, dim, 0)];
    const double* d_out = &out_gradient[At(begin + i, query_stride(), h, dim, 0)];
    double* o = &out[At(begin + i, query_stride(), h, dim, 0)];
    double* dq = &query_gradient[At(begin + i, query_stride(), h, dim, 0)];
    std::vector<double> p(static_cast<std::size_t>(i + 1), -HUGE_VAL), dp(p.size());
    std::vector<double> slope(p.size(), 1);  // of the cap
    const auto at = [&](std::int64_t j) { return At(begin + j, key_stride(), kv, dim, 0); };
    for (std::int64_t j = first; j <= i; ++j) {
      double s = 0;
      for (std::int64_t d = 0; d < dim; ++d) s += q[d] * key[at(j) + d];
      p[j] = s * shape.scale;
      if (shape.cap == 0) continue;
      const double tangent = std::tanh(p[j] / shape.cap);
      p[j] = shape.cap * tangent;
      slope[j] = 1 - tangent * tangent;
    }
    const double maximum = *std::max_element(p.begin(), p.end());
    double sum = 0;
    for (double& x : p) sum += x = std::exp(x - maximum);
    lse[begin * shape.heads + h * length + i] = maximum + std::log(sum);
    double row_sum = 0;
    for (std::int64_t j = first; j <= i; ++j) {
      p[j] /= sum;
      for (std::int64_t d = 0; d < dim; ++d) {
        o[d] += p[j] * value[at(j) + d];
        dp[j] += d_out[d] * value[at(j) + d];
        value_gradient[at(j) + d] += p[j] * d_out[d];
      }
      row_sum += p[j] * dp[j];
    }
    for (std::int64_t j = first; j <= i; ++j) {
      const double ds = p[j] * (dp[j] - row_sum) * slope[j] * shape.scale;
      for (std::int64_t d = 0; d < dim; ++d) {
        dq[d] += ds * key[at(j) + d];
        key_gradient[at(j) + d] += ds * q[d];
      }
    }
  }
};

// A row holds what the padding never may: reading it spoils a result, writing it is seen.
template <typename Element>
Element Poison() {
  Element poison;
  Store(&poison, std::numeric_limits<Wide<Element>>::quiet_NaN());
  return poison;
}

// The kernel's arrays for a reference: query, key and value side by side in one, with padding
// between the rows of all.
template <typename Element>
struct Arrays {
  static constexpr std::int64_t kPad = 6;
  AttentionShape shape;
  std::int64_t query_width, key_width, joined_stride, out_stride;
  std::vector<Element> joined, joined_gradient, out, out_gradient;
  std::vector<Wide<Element>> lse;

  explicit Arrays(const Reference& r)
      : shape(r.shape),
        query_width(r.query_stride()),
        key_width(r.key_stride()),
        joined_stride(query_width + 2 * key_width + kPad),
        out_stride(query_width + kPad) {
    const std::int64_t positions = r.positions();
    joined.assign(static_cast<std::size_t>(positions * joined_stride), Poison<Element>());
    joined_gradient = joined;
    out.assign(static_cast<std::size_t>(positions * out_stride), Poison<Element>());
    out_gradient = out;
    lse.resize(r.lse.size());
    const auto copy = [&](const std::vector<double>& from, std::int64_t width,
                          std::vector<Element>& to, std::int64_t stride, std::int64_t offset) {
      for (std::int64_t p = 0; p < positions; ++p) {
        for (std::int64_t c = 0; c < width; ++c) {
          Store(&to[p * stride + offset + c], static_cast<Wide<Element>>(from[p * width + c]));
        }
      }
    };
    copy(r.query, query_width, joined, joined_stride, 0);
    copy(r.key, key_width, joined, joined_stride, query_width);
    copy(r.value, key_width, joined, joined_stride, query_width + key_width);
    copy(r.out_gradient, query_width, out_gradient, out_stride, 0);
  }

  AttentionForwardArrays<Element> forward() {
    return {.query = {joined.data(), joined_stride},
            .key = {joined.data() + query_width, joined_stride},
            .value = {joined.data() + query_width + key_width, joined_stride},
            .out = {out.data(), out_stride},
            .lse = lse.data()};
  }
  AttentionBackwardArrays<Element> backward() {
    Element* gradient = joined_gradient.data();
    const auto f = forward();
    return {.query = f.query,
            .key = f.key,
            .value = f.value,
            .out = {out.data(), out_stride},
            .out_gradient = {out_gradient.data(), out_stride},
            .lse = lse.data(),
            .query_gradient = {gradient, joined_stride},
            .key_gradient = {gradient + query_width, joined_stride},
            .value_gradient = {gradient + query_width + key_width, joined_stride}};
  }
  void Run(const AttentionKernels<Element>& kernels) {
    AttentionForward(kernels, shape, forward(), 0, AttentionTasks(shape));
    AttentionBackward(kernels, shape, backward(), 0, AttentionTasks(shape));
  }
};

// The largest difference in proportion to the largest expected number, or to one: the inputs are of
// that size, and a gradient may cancel to nothing.
template <typename Element>
double Error(const std::vector<double>& expected, const std::vector<Element>& got,
             std::int64_t width, std::int64_t stride, std::int64_t offset) {
  double largest = 1, error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto position = static_cast<std::int64_t>(i) / width;
    const auto column = static_cast<std::int64_t>(i) % width;
    const double difference =
        static_cast<double>(Load(got[position * stride + offset + column])) - expected[i];
    largest = std::max(largest, std::abs(expected[i]));
    error = std::isnan(difference) ? HUGE_VAL : std::max(error, std::abs(difference));
  }
  return error / largest;
}

template <typename Element>
double Tolerance() {
  if (std::is_same_v<Element, double>) return 1e-13;
  if (std::is_same_v<Element, float>) return 3e-6;
  if (std::is_same_v<Element, Float16>) return 1e-3;
  return 1e-2;
}

template <typename Element>
void Expect(const Reference& r, Arrays<Element>& a, double slack) {
  SCOPED_TRACE(testing::Message() << "batch " << r.shape.batch << " length " << r.shape.length
                                  << " heads " << r.shape.heads << "/" << r.shape.kv_heads
                                  << " head_dim " << r.shape.head_dim << " window "
                                  << r.shape.window);
  const double tolerance = slack * Tolerance<Element>();
  const std::int64_t q = a.query_width, k = a.key_width, s = a.joined_stride;
  EXPECT_LE(Error(r.out, a.out, q, a.out_stride, 0), tolerance);
  const double lse_tolerance = sizeof(Element) == 8 ? 1e-13 : 1e-5;
  EXPECT_LE(Error(r.lse, a.lse, 1, 1, 0), lse_tolerance);
  EXPECT_LE(Error(r.query_gradient, a.joined_gradient, q, s, 0), 2 * tolerance);
  EXPECT_LE(Error(r.key_gradient, a.joined_gradient, k, s, q), 2 * tolerance);
  EXPECT_LE(Error(r.value_gradient, a.joined_gradient, k, s, q + k), tolerance);
  const Element poison = Poison<Element>();
  for (std::int64_t row = 0; row < r.positions(); ++row) {
    for (std::int64_t c = 0; c < Arrays<Element>::kPad; ++c) {
      ASSERT_EQ(std::memcmp(&a.out[row * a.out_stride + q + c], &poison, sizeof(poison)), 0);
      ASSERT_EQ(std::memcmp(&a.joined_gradient[row * s + q + 2 * k + c], &poison, sizeof(poison)),
                0);
    }
  }
}

AttentionShape Shape(std::int64_t batch, std::int64_t length, std::int64_t heads,
                     std::int64_t kv_heads, std::int64_t head_dim) {
  return {batch, length, heads, kv_heads, head_dim, 1 / std::sqrt(static_cast<double>(head_dim))};
}

enum class Kind { kFloat, kDouble, kBFloat16, kFloat16 };

class AttentionOnPath : public testing::TestWithParam<std::tuple<Kind, AttentionPath>> {
 protected:
  // Calls body(kernels) for the parameter's element type and path.
  template <typename Body>
  void With(Body body) {
    switch (std::get<0>(GetParam())) {
      case Kind::kFloat: return WithElement<float>(body);
      case Kind::kDouble: return WithElement<double>(body);
      case Kind::kBFloat16: return WithElement<BFloat16>(body);
      case Kind::kFloat16: return WithElement<Float16>(body);
    }
  }
  template <typename Element, typename Body>
  void WithElement(Body body) {
    const auto* kernels = FindAttention<Element>(std::get<1>(GetParam()));
    if (kernels == nullptr) GTEST_SKIP() << "this processor has no such instructions";
    body(*kernels);
  }
};

template <typename Element>
void Check(const AttentionKernels<Element>& kernels, const AttentionShape& shape) {
  const Reference reference(shape, 1);
  Arrays<Element> arrays(reference);
  arrays.Run(kernels);
  Expect(reference, arrays, 1);
}

template <typename Element>
bool Same(const std::vector<Element>& a, const std::vector<Element>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Element)) == 0;
}

TEST_P(AttentionOnPath, MatchesTheDefinitionAtEveryLength) {
  With([](const auto& kernels) {
    for (const std::int64_t length : kLengths) Check(kernels, Shape(1, length, 2, 1, 64));
  });
}

TEST_P(AttentionOnPath, MatchesTheDefinitionAtEveryHeadDimension) {
  With([](const auto& kernels) {
    for (const std::int64_t head_dim : {2, 6, 16, 32, 48, 64, 80, 96, 128, 160}) {
      Check(kernels, Shape(1, 67, 2, 1, head_dim));
    }
  });
}

TEST_P(AttentionOnPath, MatchesTheDefinitionForEveryGroupOfHeads) {
  With([](const auto& kernels) {
    for (const std::int64_t group : {1, 2, 4, 8}) {
      for (const std::int64_t kv_heads : {1, 3}) {
        Check(kernels, Shape(2, 35, group * kv_heads, kv_heads, 32));
      }
    }
  });
}

// Narrower than a block, a block, wider, of no whole number of blocks, and wider than the row.
TEST_P(AttentionOnPath, MatchesTheDefinitionForEveryWindow) {
  With([](const auto& kernels) {
    for (const std::int64_t length : {1, 33, 64, 150, 300}) {
      for (const std::int64_t window : {1, 2, 7, 31, 32, 33, 64, 100, 129, 299, 1000}) {
        AttentionShape shape = Shape(1, length, 2, 1, 32);
        shape.window = window;
        Check(kernels, shape);
      }
    }
  });
}

// Documents of every kind side by side: of one position, of a block, of some and a part.
constexpr std::int64_t kBounds[] = {0, 1, 2, 34, 35, 100, 132, 395, 400};

AttentionShape PackedShape(std::int64_t window) {
  AttentionShape shape = Shape(std::size(kBounds) - 1, 263, 4, 2, 48);
  shape.bounds = kBounds;
  shape.window = window;
  return shape;
}

TEST_P(AttentionOnPath, MatchesTheDefinitionOverDocuments) {
  With([](const auto& kernels) {
    for (const std::int64_t window : {0, 1, 40, 200}) Check(kernels, PackedShape(window));
  });
}

// A low cap that most scores feel, and a high one; a scale that is not the heads'.
TEST_P(AttentionOnPath, MatchesTheDefinitionUnderACap) {
  With([](const auto& kernels) {
    for (const double cap : {0.5, 3.0, 50.0}) {
      for (const std::int64_t window : {0, 1, 40}) {
        AttentionShape shape = PackedShape(window);
        shape.scale = 0.4;
        shape.cap = cap;
        Check(kernels, shape);
      }
    }
  });
}

// Packed or in a row of its own, and whatever lies beside it: nothing leaks, not even NaN.
TEST_P(AttentionOnPath, ADocumentHasTheBitsThatItHasAlone) {
  With([]<typename Element>(const AttentionKernels<Element>& kernels) {
    for (const std::int64_t window : {0, 40}) {
      const Reference reference(PackedShape(window), 1);
      Arrays<Element> packed(reference);
      packed.Run(kernels);
      for (std::size_t d = 1; d < std::size(kBounds); ++d) {
        const std::int64_t begin = kBounds[d - 1], end = kBounds[d], s = packed.joined_stride;
        Arrays<Element> alone(reference);
        std::fill_n(alone.joined.begin(), begin * s, Poison<Element>());
        std::fill(alone.joined.begin() + end * s, alone.joined.end(), Poison<Element>());
        alone.shape = Shape(1, end - begin, 4, 2, 48);
        alone.shape.window = window;
        auto forward = alone.forward();
        auto backward = alone.backward();
        const auto at = [&](auto& array) { array.data += begin * array.stride; };
        at(forward.query), at(forward.key), at(forward.value), at(forward.out);
        at(backward.query), at(backward.key), at(backward.value), at(backward.out);
        at(backward.out_gradient), at(backward.query_gradient), at(backward.key_gradient);
        at(backward.value_gradient);
        forward.lse += begin * 4;
        backward.lse = forward.lse;
        AttentionForward(kernels, alone.shape, forward, 0, AttentionTasks(alone.shape));
        AttentionBackward(kernels, alone.shape, backward, 0, AttentionTasks(alone.shape));
        const auto same = [&](const auto& a, const auto& b, std::int64_t stride) {
          return std::equal(
              a.begin() + begin * stride, a.begin() + end * stride, b.begin() + begin * stride,
              [](const auto& x, const auto& y) { return std::memcmp(&x, &y, sizeof(x)) == 0; });
        };
        EXPECT_TRUE(same(packed.out, alone.out, packed.out_stride)) << d;
        EXPECT_TRUE(same(packed.lse, alone.lse, 4)) << d;
        EXPECT_TRUE(same(packed.joined_gradient, alone.joined_gradient, s)) << d;
      }
    }
  });
}

// What a window leaves out changes no bit, and neither does a window that leaves out nothing.
TEST_P(AttentionOnPath, AnOutputDependsOnNothingBeforeItsWindow) {
  With([]<typename Element>(const AttentionKernels<Element>& kernels) {
    AttentionShape shape = Shape(1, 200, 2, 1, 64);
    const Reference whole(shape, 1);
    shape.window = 70;
    const Reference reference(shape, 1);
    Arrays<Element> plain(reference), changed(reference), wide(whole), widest(whole);
    Element large;
    Store(&large, Wide<Element>{1000});
    constexpr std::int64_t kChanged = 50;
    for (std::int64_t p = 0; p < kChanged; ++p) {
      std::fill_n(&changed.joined[p * changed.joined_stride + changed.query_width],
                  2 * changed.key_width, large);
    }
    plain.Run(kernels);
    changed.Run(kernels);
    const std::int64_t from = (kChanged + shape.window - 1) * plain.out_stride;
    EXPECT_TRUE(Same(std::vector(plain.out.begin() + from, plain.out.end()),
                     std::vector(changed.out.begin() + from, changed.out.end())));
    EXPECT_FALSE(Same(plain.out, changed.out));
    widest.shape.window = 200;
    wide.Run(kernels);
    widest.Run(kernels);
    EXPECT_TRUE(Same(wide.out, widest.out));
    EXPECT_TRUE(Same(wide.joined_gradient, widest.joined_gradient));
  });
}

// Exponentials are relative to a maximum that moves from block to block. The error of a score is
// in proportion to its size, and so is that of a probability.
TEST_P(AttentionOnPath, ScoresOfThousandsDoNotOverflow) {
  With([]<typename Element>(const AttentionKernels<Element>& kernels) {
    const Reference reference(Shape(1, 300, 2, 1, 64), 512);
    Arrays<Element> arrays(reference);
    arrays.Run(kernels);
    Expect(reference, arrays, 200);
  });
}

// The largest score comes last, first, and rises in steps of just less than what is let pass.
TEST_P(AttentionOnPath, TheMaximumMayComeAnywhere) {
  With([]<typename Element>(const AttentionKernels<Element>& kernels) {
    for (const double slope : {-0.125, 0.03125, 0.0625, 0.125}) {
      Reference reference(Shape(1, 400, 1, 1, 16), 1);
      for (std::int64_t p = 0; p < reference.shape.length; ++p) {
        for (int d = 0; d < 16; ++d) reference.query[p * 16 + d] = d == 0 ? 4 : 0;
        reference.key[p * 16] = slope * static_cast<double>(p - p % 8);
      }
      reference.Compute();
      Arrays<Element> arrays(reference);
      arrays.Run(kernels);
      Expect(reference, arrays, 8);
    }
  });
}

TEST_P(AttentionOnPath, AnyCutOfTheTasksGivesTheSameBits) {
  With([]<typename Element>(const AttentionKernels<Element>& kernels) {
    const AttentionShape shape = Shape(2, 150, 6, 3, 32);
    const Reference reference(shape, 1);
    Arrays<Element> whole(reference), cut(reference);
    whole.Run(kernels);
    for (const auto& [begin, end] : {std::pair{4, 6}, {0, 1}, {1, 1}, {1, 4}}) {
      AttentionForward(kernels, shape, cut.forward(), begin, end);
      AttentionBackward(kernels, shape, cut.backward(), begin, end);
    }
    EXPECT_TRUE(Same(whole.out, cut.out));
    EXPECT_TRUE(Same(whole.lse, cut.lse));
    EXPECT_TRUE(Same(whole.joined_gradient, cut.joined_gradient));
  });
}

// Nothing that comes after a position changes a bit of it, not even through padding or masks.
TEST_P(AttentionOnPath, AnOutputDependsOnNoLaterPosition) {
  With([]<typename Element>(const AttentionKernels<Element>& kernels) {
    const Reference reference(Shape(1, 140, 2, 1, 64), 1);
    Arrays<Element> plain(reference), changed(reference);
    constexpr std::int64_t kKept = 77;
    Element large;
    Store(&large, Wide<Element>{1000});
    for (std::int64_t p = kKept; p < 140; ++p) {
      std::fill_n(&changed.joined[p * changed.joined_stride], changed.query_width, large);
      std::fill_n(&changed.joined[p * changed.joined_stride + changed.query_width],
                  2 * changed.key_width, large);
    }
    plain.Run(kernels);
    changed.Run(kernels);
    plain.out.resize(kKept * plain.out_stride);
    changed.out.resize(kKept * changed.out_stride);
    EXPECT_TRUE(Same(plain.out, changed.out));
  });
}

// A loss that is not finite must be seen, so NaN may not drown in a maximum or an exponential.
TEST_P(AttentionOnPath, NanInAKeyReachesEveryLaterOutputAndItsOwnGradient) {
  With([]<typename Element>(const AttentionKernels<Element>& kernels) {
    const Reference reference(Shape(1, 70, 1, 1, 32), 1);
    Arrays<Element> arrays(reference);
    arrays.joined[40 * arrays.joined_stride + arrays.query_width + 3] = Poison<Element>();
    arrays.Run(kernels);
    for (std::int64_t p = 0; p < 70; ++p) {
      EXPECT_EQ(std::isnan(Load(arrays.out[p * arrays.out_stride])), p >= 40) << p;
    }
    EXPECT_TRUE(
        std::isnan(Load(arrays.joined_gradient[40 * arrays.joined_stride + arrays.query_width])));
  });
}

std::string NameOf(const testing::TestParamInfo<AttentionOnPath::ParamType>& info) {
  constexpr const char* kKinds[] = {"Float", "Double", "BFloat16", "Float16"};
  constexpr const char* kPaths[] = {"Portable", "Avx2", "Avx512", "Bf16Dot", "Amx"};
  return std::string(kKinds[static_cast<int>(std::get<0>(info.param))]) +
         kPaths[static_cast<int>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionOnPath,
                         testing::Values(std::tuple{Kind::kDouble, AttentionPath::kPortable},
                                         std::tuple{Kind::kFloat, AttentionPath::kPortable},
                                         std::tuple{Kind::kBFloat16, AttentionPath::kPortable},
                                         std::tuple{Kind::kFloat16, AttentionPath::kPortable},
                                         std::tuple{Kind::kFloat, AttentionPath::kAvx2},
                                         std::tuple{Kind::kBFloat16, AttentionPath::kAvx2},
                                         std::tuple{Kind::kFloat16, AttentionPath::kAvx2},
                                         std::tuple{Kind::kFloat, AttentionPath::kAvx512},
                                         std::tuple{Kind::kBFloat16, AttentionPath::kAvx512},
                                         std::tuple{Kind::kFloat16, AttentionPath::kAvx512},
                                         std::tuple{Kind::kBFloat16, AttentionPath::kBf16Dot},
                                         std::tuple{Kind::kBFloat16, AttentionPath::kAmx}),
                         NameOf);

TEST(Attention, TheFastestFormIsOneThatTheProcessorHas) {
  EXPECT_NE(FindAttention<float>(FastestAttention<float>()), nullptr);
  EXPECT_NE(FindAttention<BFloat16>(FastestAttention<BFloat16>()), nullptr);
  EXPECT_NE(FindAttention<Float16>(FastestAttention<Float16>()), nullptr);
  EXPECT_EQ(FastestAttention<double>(), AttentionPath::kPortable);
}

TEST(Attention, TheContractIsServedByTheFastestForm) {
  const Reference reference(Shape(1, 40, 2, 2, 64), 1);
  Arrays<BFloat16> chosen(reference), named(reference);
  AttentionForward(chosen.shape, chosen.forward(), 0, 2);
  AttentionBackward(chosen.shape, chosen.backward(), 0, 2);
  named.Run(*FindAttention<BFloat16>(FastestAttention<BFloat16>()));
  EXPECT_TRUE(Same(chosen.out, named.out));
  EXPECT_TRUE(Same(chosen.joined_gradient, named.joined_gradient));
}

}  // namespace
}  // namespace muster
