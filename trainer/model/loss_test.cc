#include "trainer/model/loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace muster {
namespace {

struct Inputs {
  at::Tensor hidden, weight, labels;

  explicit Inputs(std::int64_t rows) {
    at::manual_seed(7);
    hidden = at::randn({rows, 12});
    weight = at::randn({29, 12});
    labels = at::randint(29, {rows}, at::kLong);
  }
};

TEST(CrossEntropyHead, MatchesAutograd) {
  Inputs in(10);
  const at::Tensor hidden = in.hidden.clone().requires_grad_(true);
  const at::Tensor weight = in.weight.clone().requires_grad_(true);
  const at::Tensor loss =
      at::cross_entropy_loss(at::linear(hidden, weight), in.labels, {}, at::Reduction::Sum) * 0.25;
  const auto gradients = torch::autograd::grad({loss}, {hidden, weight});

  const HeadLoss head = CrossEntropyHead(in.hidden, in.weight, in.labels, {.scale = 0.25});
  EXPECT_NEAR(head.loss, loss.item<double>(), 1e-5);
  EXPECT_TRUE(at::allclose(head.hidden_gradient, gradients[0], 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(head.weight_gradient, gradients[1], 1e-5, 1e-6));
}

TEST(CrossEntropyHead, ChunksChangeNothing) {
  Inputs in(10);
  const HeadLoss whole = CrossEntropyHead(in.hidden, in.weight, in.labels, {.scale = 1});
  const HeadLoss parts =
      CrossEntropyHead(in.hidden, in.weight, in.labels, {.scale = 1, .chunk_rows = 3});
  EXPECT_NEAR(whole.loss, parts.loss, 1e-5);
  EXPECT_TRUE(at::allclose(whole.hidden_gradient, parts.hidden_gradient, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(whole.weight_gradient, parts.weight_gradient, 1e-5, 1e-6));
}

TEST(CrossEntropyHead, RowsWithoutALabelDoNotCount) {
  Inputs in(10);
  const HeadLoss kept = CrossEntropyHead(in.hidden.narrow(0, 0, 6), in.weight,
                                         in.labels.narrow(0, 0, 6), {.scale = 1});
  in.labels.narrow(0, 6, 4).fill_(-100);
  const HeadLoss all = CrossEntropyHead(in.hidden, in.weight, in.labels, {.scale = 1});
  EXPECT_NEAR(all.loss, kept.loss, 1e-5);
  EXPECT_EQ(all.hidden_gradient.narrow(0, 6, 4).abs().sum().item<double>(), 0.0);
  EXPECT_TRUE(at::allclose(all.weight_gradient, kept.weight_gradient, 1e-5, 1e-6));
}

TEST(CrossEntropyHead, NoLabelsMeansZero) {
  Inputs in(0);
  const HeadLoss head = CrossEntropyHead(in.hidden, in.weight, in.labels, {.scale = 1});
  EXPECT_EQ(head.loss, 0.0);
  EXPECT_EQ(head.hidden_gradient.size(0), 0);
  EXPECT_EQ(head.weight_gradient.abs().sum().item<double>(), 0.0);
}

TEST(LabelLogProbs, AddUpToTheLoss) {
  Inputs in(6);
  const HeadLoss head = CrossEntropyHead(in.hidden, in.weight, in.labels, {.scale = 1});
  const at::Tensor log_probs = LabelLogProbs(in.hidden, in.weight, in.labels);
  EXPECT_NEAR(-log_probs.sum().item<double>(), head.loss, 1e-4);
}

}  // namespace
}  // namespace muster
