#include "trainer/model/llama_head.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <vector>

#include "trainer/model/activation_bytes.h"
#include "trainer/model/llama.h"
#include "trainer/model/testing/head_factors.h"
#include "trainer/model/testing/model_testing.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace muster {
namespace {

constexpr double kEps = 1e-5;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kHidden = 12, kVocabulary = 29;

struct Outcome {
  double loss = 0;
  at::Tensor gradient;
  at::Tensor norm_gradient;
  at::Tensor head_gradient;
};

// Hidden states of some tokens, of which those at `positions` have a label.
struct Problem {
  at::ScalarType type;
  at::Tensor sum, delta, norm, head, positions, labels;
  double scale = 0.25;

  Problem(at::ScalarType element, std::int64_t tokens, std::int64_t labelled) : type(element) {
    at::manual_seed(7);
    const auto random = [&](at::IntArrayRef shape) {
      return at::randn(shape, at::kDouble).to(type);
    };
    sum = random({tokens, kHidden});
    delta = random({tokens, kHidden});
    norm = random({kHidden});
    head = random({kVocabulary, kHidden});
    positions = std::get<0>(at::randperm(tokens, at::kLong).narrow(0, 0, labelled).sort());
    labels = at::randint(kVocabulary, {labelled}, at::kLong);
  }
};

Outcome Differentiated(const Problem& p) {
  const auto leaf = [](const at::Tensor& t) { return t.to(at::kDouble).requires_grad_(true); };
  const at::Tensor hidden = leaf(p.sum + p.delta), norm = leaf(p.norm), head = leaf(p.head);
  const at::Tensor normed = RmsNorm(hidden.index_select(0, p.positions), norm, kEps);
  const at::Tensor loss =
      at::cross_entropy_loss(at::linear(normed, head), p.labels, {}, at::Reduction::Sum, -1);
  const auto gradients = torch::autograd::grad({loss * p.scale}, {hidden, norm, head});
  return {loss.item<double>(), gradients[0], gradients[1], gradients[2]};
}

struct Targets {
  at::ScalarType type;
  bool add = false;
  double before = kNan;
};

Outcome TrainWith(const Problem& p, LlamaHead& head, const Targets& targets) {
  const auto target = [&](const at::Tensor& like) {
    return GradientTarget{at::full(like.sizes(), targets.before, targets.type), targets.add};
  };
  const HeadTask task{.hidden = {.sum = p.sum, .delta = p.delta},
                      .norm = p.norm,
                      .head = p.head,
                      .positions = p.positions,
                      .labels = p.labels,
                      .eps = kEps,
                      .scale = p.scale,
                      .norm_gradient = target(p.norm),
                      .head_gradient = target(p.head)};
  at::Tensor loss = at::full({1}, 100.0, at::kDouble);
  const at::Tensor gradient = head.Run(task, loss);
  return {loss.item<double>() - 100.0, gradient.clone(), task.norm_gradient.tensor,
          task.head_gradient.tensor};
}

HeadTask TaskOf(const Problem& p) {
  return {.hidden = {.sum = p.sum, .delta = p.delta},
          .norm = p.norm,
          .head = p.head,
          .positions = p.positions,
          .labels = p.labels,
          .eps = kEps};
}

// [labelled, V] in fp64.
at::Tensor LogitsOf(const Problem& p) {
  const at::Tensor hidden = (p.sum + p.delta).to(at::kDouble).index_select(0, p.positions);
  return at::linear(RmsNorm(hidden, p.norm.to(at::kDouble), kEps), p.head.to(at::kDouble));
}

struct Measured {
  double loss = 0;
  double correct = 0;
};

void ExpectClose(const Outcome& got, const Outcome& want, double tolerance) {
  EXPECT_NEAR(got.loss, want.loss, tolerance * want.loss);
  EXPECT_LE(RelativeDifference(got.gradient, want.gradient), tolerance);
  EXPECT_LE(RelativeDifference(got.norm_gradient, want.norm_gradient), tolerance);
  EXPECT_LE(RelativeDifference(got.head_gradient, want.head_gradient), tolerance);
}

class LlamaHeadOf : public testing::TestWithParam<at::ScalarType> {
 protected:
  Outcome Train(const Problem& p, const Targets& targets) const {
    LlamaHead head(*ops_, p.type);
    return TrainWith(p, head, targets);
  }
  Outcome TrainInChunks(const Problem& p, std::int64_t chunk_rows, const Targets& targets) const {
    LlamaHead head(*ops_, p.type, chunk_rows * kVocabulary * at::elementSize(p.type));
    return TrainWith(p, head, targets);
  }
  Measured MeasureWith(const Problem& p, std::int64_t chunk_rows) const {
    LlamaHead head(*ops_, p.type, chunk_rows * kVocabulary * at::elementSize(p.type));
    at::Tensor loss = at::full({1}, 100.0, at::kDouble);
    at::Tensor correct = at::full({1}, 100.0, at::kDouble);
    head.Measure(TaskOf(p), loss, correct);
    return {loss.item<double>() - 100, correct.item<double>() - 100};
  }
  double tolerance() const { return Tolerance(GetParam()); }

  const std::unique_ptr<DeviceOps> ops_ = MakeCpuOps();
};

TEST_P(LlamaHeadOf, GradientsMatchAutograd) {
  for (const auto& [tokens, labelled] : {std::pair{1, 1}, {70, 70}, {70, 3}, {200, 131}}) {
    SCOPED_TRACE(testing::Message() << labelled << " labels of " << tokens << " tokens");
    const Problem p(GetParam(), tokens, labelled);
    ExpectClose(Train(p, {.type = GetParam()}), Differentiated(p), tolerance());
  }
}

TEST_P(LlamaHeadOf, ChunksChangeNoMoreThanTheOrderOfSums) {
  const Problem p(GetParam(), 200, 131);
  const at::ScalarType wide = WideType(GetParam());
  const Outcome whole = Train(p, {.type = wide});
  for (const int rows : {1, 7, 64, 130}) {
    SCOPED_TRACE(rows);
    ExpectClose(TrainInChunks(p, rows, {.type = wide}), whole, tolerance());
  }
}

TEST_P(LlamaHeadOf, GradientsAreAddedToTargets) {
  const Problem p(GetParam(), 70, 40);
  Outcome want = Differentiated(p);
  want.norm_gradient += 0.5;
  want.head_gradient += 0.5;
  for (const at::ScalarType type : {GetParam(), WideType(GetParam())}) {
    const Targets targets{.type = type, .add = true, .before = 0.5};
    ExpectClose(Train(p, targets), want, tolerance());
    ExpectClose(TrainInChunks(p, 32, targets), want, tolerance());
  }
}

TEST_P(LlamaHeadOf, NegativeLabelsCountNothing) {
  Problem all(GetParam(), 70, 40), some = all;
  all.labels.narrow(0, 30, 10).fill_(-100);
  some.labels = some.labels.narrow(0, 0, 30);
  some.positions = some.positions.narrow(0, 0, 30);
  ExpectClose(Train(all, {.type = GetParam()}), Differentiated(some), tolerance());
}

TEST_P(LlamaHeadOf, WithoutLabelsGradientsAreZeroOrStay) {
  const Problem p(GetParam(), 5, 0);
  const Outcome written = Train(p, {.type = GetParam()});
  EXPECT_EQ(written.loss, 0);
  EXPECT_EQ(written.gradient.abs().sum().item<double>(), 0);
  EXPECT_EQ(written.gradient.sizes(), p.sum.sizes());
  EXPECT_EQ(written.norm_gradient.abs().sum().item<double>(), 0);
  EXPECT_EQ(written.head_gradient.abs().sum().item<double>(), 0);
  const Outcome added = Train(p, {.type = GetParam(), .add = true, .before = 0.5});
  EXPECT_TRUE(at::equal(added.head_gradient, at::full_like(added.head_gradient, 0.5)));
  EXPECT_TRUE(at::equal(added.norm_gradient, at::full_like(added.norm_gradient, 0.5)));
}

TEST_P(LlamaHeadOf, MeasuresWithoutGradients) {
  for (const auto& [tokens, labelled] : {std::pair{1, 1}, {70, 70}, {70, 3}, {200, 131}}) {
    SCOPED_TRACE(testing::Message() << labelled << " labels of " << tokens << " tokens");
    Problem p(GetParam(), tokens, labelled);
    const at::Tensor logits = LogitsOf(p);
    const std::int64_t half = (labelled + 1) / 2;
    p.labels.narrow(0, 0, half).copy_(logits.argmax(1).narrow(0, 0, half));
    const double want = Differentiated(p).loss;
    const at::Tensor of_label = logits.gather(1, p.labels.unsqueeze(1)).squeeze(1);
    const double correct = of_label.ge(logits.amax(1)).sum().item<double>();
    for (const int chunk_rows : {7, 64, 1000}) {
      const Measured got = MeasureWith(p, chunk_rows);
      EXPECT_NEAR(got.loss, want, 2 * tolerance() * want);
      // Where words are nearly as likely as each other rounding decides.
      EXPECT_NEAR(got.correct, correct, GetParam() == at::kDouble ? 0 : 1 + labelled / 10);
    }
  }
}

TEST_P(LlamaHeadOf, MeasuresNothingWhereThereIsNoLabel) {
  const Measured nothing = MeasureWith(Problem(GetParam(), 5, 0), 64);
  EXPECT_EQ(nothing.loss, 0);
  EXPECT_EQ(nothing.correct, 0);
  Problem ignored(GetParam(), 70, 40);
  ignored.labels.fill_(-100);
  EXPECT_EQ(MeasureWith(ignored, 64).loss, 0);
  EXPECT_EQ(MeasureWith(ignored, 64).correct, 0);
}

TEST_P(LlamaHeadOf, ChoosesTheMostLikelyOfTheFirstWords) {
  const Problem p(GetParam(), 70, 5);
  LlamaHead head(*ops_, p.type, 3 * kVocabulary * at::elementSize(p.type));
  for (const std::int64_t words : {kVocabulary, std::int64_t{4}}) {
    const at::Tensor chosen = head.Choose(TaskOf(p), words);
    ASSERT_EQ(chosen.numel(), 5);
    EXPECT_LT(chosen.max().item<std::int64_t>(), words);
    const at::Tensor logits = LogitsOf(p).narrow(1, 0, words);
    const at::Tensor of_chosen = logits.gather(1, chosen.unsqueeze(1)).squeeze(1);
    const at::Tensor short_of = logits.amax(1) - of_chosen;
    EXPECT_LE(short_of.max().item<double>(), 10 * tolerance());
  }
}

TEST_P(LlamaHeadOf, ABatchLeavesNothingToTheNext) {
  const Problem large(GetParam(), 200, 131), small(GetParam(), 70, 3);
  LlamaHead head(*ops_, GetParam());
  TrainWith(large, head, {.type = GetParam()});
  const Outcome after = TrainWith(small, head, {.type = GetParam()});
  const Outcome alone = Train(small, {.type = GetParam()});
  EXPECT_EQ(after.loss, alone.loss);
  EXPECT_TRUE(at::equal(after.gradient, alone.gradient));
  EXPECT_TRUE(at::equal(after.head_gradient, alone.head_gradient));
}

// In fp64.
at::Tensor ProductOf(const HeadFactors& factors) {
  return at::matmul(at::cat(factors.logits).to(at::kDouble).t(), factors.normed.to(at::kDouble));
}

// What is left is the one rounding of the result, 0.17 %; sums in bf16 would be 1.2 % off.
TEST(LlamaHeadPrecision, ManyChunksRoundTheHeadsGradientOnce) {
  const std::unique_ptr<DeviceOps> cpu = MakeCpuOps();
  HeadFactors ops(*cpu);
  const Problem p(at::kBFloat16, 1024, 1024);
  LlamaHead head(ops, p.type, 8 * kVocabulary * at::elementSize(p.type));
  const Outcome got = TrainWith(p, head, {.type = p.type});
  EXPECT_EQ(ops.logits.size(), 128u);
  EXPECT_LE(RelativeDifference(got.head_gradient, ProductOf(ops)), 2e-3);
}

TEST(LlamaHeadPrecision, ChunksAddToWhatIsThere) {
  const std::unique_ptr<DeviceOps> cpu = MakeCpuOps();
  HeadFactors ops(*cpu);
  const Problem p(at::kBFloat16, 1024, 700);
  LlamaHead head(ops, p.type, 8 * kVocabulary * at::elementSize(p.type));
  const Outcome got = TrainWith(p, head, {.type = p.type, .add = true, .before = 0.5});
  EXPECT_LE(RelativeDifference(got.head_gradient, ProductOf(ops) + 0.5), 2e-3);
}

TEST(LlamaHeadPrecision, TheSameChunksGiveTheSameBits) {
  const std::unique_ptr<DeviceOps> ops = MakeCpuOps();
  const Problem p(at::kBFloat16, 200, 131), few(at::kBFloat16, 200, 3);
  LlamaHead head(*ops, p.type, 8 * kVocabulary * at::elementSize(p.type));
  const Outcome first = TrainWith(p, head, {.type = p.type});
  TrainWith(few, head, {.type = p.type});
  const Outcome second = TrainWith(p, head, {.type = p.type});
  EXPECT_TRUE(at::equal(first.head_gradient, second.head_gradient));
}

INSTANTIATE_TEST_SUITE_P(Types, LlamaHeadOf,
                         testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf));

TEST(LlamaHeadMemory, HoldsLogitsOfOneChunk) {
  const std::unique_ptr<DeviceOps> ops = MakeCpuOps();
  const Problem p(at::kFloat, 512, 512);
  const std::int64_t row_bytes = 4 * kVocabulary;
  LlamaHead chunked(*ops, p.type, 150 * row_bytes), whole(*ops, p.type);
  TrainWith(p, chunked, {.type = p.type});
  TrainWith(p, whole, {.type = p.type});
  EXPECT_EQ(whole.bytes() - chunked.bytes(), (512 - 128) * row_bytes)
      << "chunks are multiples of 64";
}

TEST(LlamaHeadMemory, DoesNotDependOnTheNumberOfLabels) {
  const std::unique_ptr<DeviceOps> ops = MakeCpuOps();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    LlamaHead head(*ops, type, 64 * kVocabulary * at::elementSize(type));
    TrainWith(Problem(type, 200, 0), head, {.type = type});
    const std::int64_t bytes = head.bytes();
    TrainWith(Problem(type, 200, 131), head, {.type = type});
    TrainWith(Problem(type, 200, 200), head, {.type = type});
    EXPECT_EQ(head.bytes(), bytes);
  }
}

// Once more the head in fp32, and only for several chunks in 16 bits of a head that is trained.
TEST(LlamaHeadMemory, SumsOfChunksAreOneArray) {
  const std::unique_ptr<DeviceOps> ops = MakeCpuOps();
  const auto sums = [&](at::ScalarType type, std::int64_t rows, bool trains) {
    const LlamaHead head(*ops, type, rows * 1024 * at::elementSize(type));
    LlamaHead::Shape shape{.tokens = 512, .hidden = 64, .vocabulary = 1024};
    const std::int64_t without = head.BytesFor(shape);
    shape.trains_head = trains;
    return head.BytesFor(shape) - without;
  };
  EXPECT_EQ(sums(at::kBFloat16, 128, true), 4 * 1024 * 64);
  EXPECT_EQ(sums(at::kHalf, 128, true), 4 * 1024 * 64);
  EXPECT_EQ(sums(at::kBFloat16, 128, false), 0);
  EXPECT_EQ(sums(at::kBFloat16, 512, true), 0);
  EXPECT_EQ(sums(at::kFloat, 128, true), 0);
}

// The figures of a plan, over more than one chunk.
TEST(LlamaHeadMemory, IsWhatAPlanMeasures) {
  const std::unique_ptr<DeviceOps> ops = MakeCpuOps();
  ModelConfig config = OddConfig(1);
  config.vocab_size = 65536;
  LlamaHead head(*ops, at::kBFloat16);
  const auto random = [](at::IntArrayRef shape) { return at::randn(shape).to(at::kBFloat16); };
  const at::Tensor weight = random({config.vocab_size, config.hidden_size});
  at::Tensor loss = at::zeros({1}, at::kDouble);
  head.Run({.hidden = {.sum = random({96, config.hidden_size})},
            .norm = random({config.hidden_size}),
            .head = weight,
            .positions = at::arange(96),
            .labels = at::arange(96),
            .eps = kEps,
            .head_gradient = {.tensor = at::empty_like(weight)}},
           loss);
  EXPECT_EQ(head.bytes(), MeasureActivations(config, {.rows = 3, .length = 32}).head);
}

}  // namespace
}  // namespace muster
