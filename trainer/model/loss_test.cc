#include "trainer/model/loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(ScoreLabels, AreTheNegativeCrossEntropies) {
  at::manual_seed(7);
  const at::Tensor hidden = at::randn({6, 12}), weight = at::randn({29, 12});
  const at::Tensor labels = at::randint(29, {6}, at::kLong);
  const at::Tensor want =
      at::cross_entropy_loss(at::linear(hidden, weight), labels, {}, at::Reduction::None).neg();
  const at::Tensor log_probs = ScoreLabels(hidden, weight, labels).log_probs;
  EXPECT_EQ(log_probs.sizes(), at::IntArrayRef({6}));
  EXPECT_TRUE(at::allclose(log_probs, want, 1e-5, 1e-6));
}

TEST(ScoreLabels, AreThoseOfLogitsThatAreDividedAndCapped) {
  at::manual_seed(9);
  const at::Tensor hidden = at::randn({6, 12}), weight = at::randn({29, 12});
  const at::Tensor labels = at::randint(29, {6}, at::kLong);
  const at::Tensor logits = 1.5 * (at::linear(hidden, weight) / 2 / 1.5).tanh();
  const at::Tensor want = at::cross_entropy_loss(logits, labels, {}, at::Reduction::None).neg();
  const at::Tensor log_probs = ScoreLabels(hidden, weight, labels, 2, 1.5).log_probs;
  EXPECT_TRUE(at::allclose(log_probs, want, 1e-5, 1e-6));
}

TEST(ScoreLabels, AreFp32ForWeightsOfFewerBits) {
  const at::Tensor hidden = at::ones({1, 4}, at::kBFloat16),
                   weight = at::zeros({8, 4}, at::kBFloat16);
  const at::Tensor log_probs = ScoreLabels(hidden, weight, at::zeros({1}, at::kLong)).log_probs;
  EXPECT_EQ(log_probs.scalar_type(), at::kFloat);
  EXPECT_NEAR(log_probs.item<float>(), -std::log(8.0), 1e-6);
}

TEST(ScoreLabels, KnowTheMostLikelyToken) {
  at::manual_seed(8);
  const at::Tensor hidden = at::randn({600, 12}), weight = at::randn({29, 12});
  const at::Tensor best = at::linear(hidden, weight).argmax(1);
  const at::Tensor labels = at::where(at::arange(600) % 3 == 0, best, (best + 1) % 29);
  const at::Tensor is_best = ScoreLabels(hidden, weight, labels).is_best;
  EXPECT_TRUE(at::equal(is_best, at::arange(600) % 3 == 0)) << "over several pieces";
}

}  // namespace
}  // namespace muster
