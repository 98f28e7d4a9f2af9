#include "trainer/generation/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace muster {
namespace {

// Probabilities 0.1, 0.4, 0.2, 0.25, 0.05 at temperature 1.
const std::vector<double> kProbabilities = {0.1, 0.4, 0.2, 0.25, 0.05};

std::vector<float> Logits() {
  std::vector<float> logits;
  for (const double p : kProbabilities) logits.push_back(static_cast<float>(std::log(p) + 3));
  return logits;
}

// Pearson's statistic over the ids that may be drawn; every other id must not be. Its 99.9 %
// quantiles for one to four degrees of freedom lie below 18.5.
void ExpectDraws(const SamplingOptions& options, const std::vector<double>& expected) {
  constexpr int kDraws = 50'000;
  Sampler sampler(options);
  const std::vector<float> logits = Logits();
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<std::size_t>(sampler.Draw(logits))];
  double statistic = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double mean = expected[i] * kDraws;
    if (mean == 0) {
      EXPECT_EQ(counts[i], 0) << "id " << i;
    } else {
      statistic += (counts[i] - mean) * (counts[i] - mean) / mean;
    }
  }
  EXPECT_LT(statistic, 18.5);
}

std::vector<double> Normalised(std::vector<double> weights) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  for (double& weight : weights) weight /= sum;
  return weights;
}

TEST(Sampler, DrawsInProportionToProbabilities) { ExpectDraws({.temperature = 1}, kProbabilities); }

TEST(Sampler, OfAnotherTemperatureDrawsPowersOfThem) {
  for (const double temperature : {0.5, 2.0}) {
    std::vector<double> powers;
    for (const double p : kProbabilities) powers.push_back(std::pow(p, 1 / temperature));
    ExpectDraws({.temperature = temperature}, Normalised(powers));
  }
}

TEST(Sampler, OfTopKDrawsFromTheMostLikelyOnly) {
  ExpectDraws({.temperature = 1, .top_k = 2}, Normalised({0, 0.4, 0, 0.25, 0}));
  ExpectDraws({.temperature = 1, .top_k = 99}, kProbabilities);
}

TEST(Sampler, OfTopPDrawsFromTheFewestThatReachIt) {
  ExpectDraws({.temperature = 1, .top_p = 0.7}, Normalised({0, 0.4, 0.2, 0.25, 0}));
  ExpectDraws({.temperature = 1, .top_p = 0.6}, Normalised({0, 0.4, 0, 0.25, 0}));
  ExpectDraws({.temperature = 1, .top_p = 1e-9}, {0, 1, 0, 0, 0});
}

// After top_k 3 the shares are 0.47, 0.29, 0.24: 0.7 takes two of them.
TEST(Sampler, OfBothTakesTopPOfWhatTopKLeaves) {
  ExpectDraws({.temperature = 1, .top_k = 3, .top_p = 0.7}, Normalised({0, 0.4, 0, 0.25, 0}));
}

TEST(Sampler, WithoutTemperatureTakesTheFirstOfTheMostLikely) {
  const std::vector<float> logits = {1, 3, -2, 3};
  Sampler sampler({.temperature = 0});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(sampler.Draw(logits), 1);
}

TEST(Sampler, RepeatsItsDrawsForASeed) {
  const auto draw = [](std::uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<std::int64_t> drawn;
    for (int i = 0; i < 50; ++i) drawn.push_back(sampler.Draw(Logits()));
    return drawn;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(Sampler, CannotDrawFromInfiniteLogits) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& logits :
       std::vector<std::vector<float>>{{1, inf, 2}, {1, nan, 2}, {inf, inf}, {-inf, -inf}, {}}) {
    EXPECT_FALSE(CanBeDrawnFrom(logits)) << logits.size();
  }
  EXPECT_TRUE(CanBeDrawnFrom(Logits()));
}

TEST(Sampler, NeverDrawsWhatIsMinusInfinite) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {-inf, 1, -inf, 1};
  ASSERT_TRUE(CanBeDrawnFrom(logits));
  for (const double top_p : {1.0, 0.9}) {
    Sampler sampler({.temperature = 1, .top_p = top_p});
    for (int i = 0; i < 200; ++i) EXPECT_EQ(sampler.Draw(logits) % 2, 1);
  }
}

TEST(Sampler, KeepsWhatASortedListWouldOfALargeVocabulary) {
  std::mt19937 random(3);
  std::vector<float> logits(20'000);
  for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 250;
  for (const double share : {0.001, 0.3, 0.9, 0.999}) {
    const Sampler all({.temperature = 1, .top_k = 20'000});
    std::vector<Candidate> sorted = all.Candidates(logits);
    double sum = 0, reached = 0;
    for (const Candidate& candidate : sorted) sum += candidate.weight;
    std::size_t expected = 0;
    while (reached < share * sum) reached += sorted[expected++].weight;
    const std::vector<Candidate> kept =
        Sampler({.temperature = 1, .top_p = share}).Candidates(logits);
    ASSERT_NEAR(static_cast<double>(kept.size()), static_cast<double>(expected), 1) << share;
    for (std::size_t i = 0; i < std::min(kept.size(), expected); ++i) {
      ASSERT_EQ(kept[i].id, sorted[i].id);
    }
  }
}

}  // namespace
}  // namespace muster
