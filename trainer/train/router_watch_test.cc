#include "trainer/train/router_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;

// Two sparse layers behind a dense one.
ModelConfig Mixture(std::int64_t experts, std::int64_t per_token) {
  ModelConfig config;
  config.num_hidden_layers = 3;
  config.experts = {.count = experts, .per_token = per_token, .sparse_layers = {false, true, true}};
  return config;
}

// The warnings of so many steps alike.
std::vector<std::string> Look(RouterWatch& watch, const ExpertLoad& load, int steps) {
  std::vector<std::string> warnings;
  for (int s = 0; s < steps; ++s) {
    if (auto warning = watch.Look(load)) warnings.push_back(*warning);
  }
  return warnings;
}

const ModelConfig kModel = Mixture(4, 2);
const std::vector<double> kEven = {50, 50, 50, 50, 50, 50, 50, 50};
// Expert 2 of layer 2 is given 95 of 100 tokens.
const std::vector<double> kTaken = {50, 50, 50, 50, 40, 30, 95, 35};
const std::vector<double> kIdle = {50, 50, 50, 50, 70, 0, 80, 50};

TEST(RouterWatch, NamesARouterThatGivesOneExpertNearlyAllTokens) {
  RouterWatch watch({.balance_coefficient = 0.001});
  EXPECT_TRUE(Look(watch, MeasureLoad(kModel, kTaken), RouterWatch::kTakenSteps - 1).empty());
  EXPECT_TRUE(Look(watch, MeasureLoad(kModel, kEven), 1).empty()) << "the row is broken";
  const auto warnings = Look(watch, MeasureLoad(kModel, kTaken), 3 * RouterWatch::kTakenSteps);
  ASSERT_EQ(warnings.size(), 1u) << "once";
  EXPECT_EQ(warnings[0],
            "the router of layer 2 gives expert 2 95 % of the tokens, for 20 steps; raise "
            "router_aux_loss_coef (0.001) in the model's config.json, or lower train.optimizer.lr");
  EXPECT_TRUE(Look(watch, MeasureLoad(kModel, kEven), 1).empty());
  EXPECT_EQ(Look(watch, MeasureLoad(kModel, kTaken), RouterWatch::kTakenSteps).size(), 1u)
      << "it has been gone";
}

TEST(RouterWatch, NamesExpertsThatAreGivenNothing) {
  RouterWatch watch({});
  const ExpertLoad idle = MeasureLoad(kModel, kIdle);
  EXPECT_TRUE(Look(watch, idle, RouterWatch::kIdleSteps - 1).empty());
  const auto warnings = Look(watch, idle, RouterWatch::kIdleSteps);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("expert 1 of layer 2 was given no token in the last 100 "
                                     "steps; set output_router_logits: true"));
}

// Four tokens a step: by even shares an expert has two choices of them.
TEST(RouterWatch, WaitsUntilAnIdleExpertWouldHaveHadManyTokens) {
  RouterWatch watch({});
  const ExpertLoad idle = MeasureLoad(kModel, {2, 2, 2, 2, 3, 0, 3, 2});
  const int enough = static_cast<int>(RouterWatch::kIdleTokens / 2);
  EXPECT_TRUE(Look(watch, idle, enough - 1).empty());
  EXPECT_EQ(Look(watch, idle, 1).size(), 1u);
}

TEST(RouterWatch, SaysWhatToDoWhereRoutersAreFrozen) {
  RouterWatch watch({.trained = false});
  const auto warnings = Look(watch, MeasureLoad(kModel, kTaken), RouterWatch::kTakenSteps);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("the routers are frozen beside adapters"));
}

TEST(RouterWatch, SaysNothingWhereSharesAreLargeByRight) {
  RouterWatch watch({});
  const std::vector<double> all(6, 100);  // 3 of 3 experts
  EXPECT_TRUE(Look(watch, MeasureLoad(Mixture(3, 3), all), 200).empty());
  // 9 of 10 experts: by even shares each is given 90 % of the tokens, here one of them 94 %.
  std::vector<double> most(20, 89.5);
  most[4] = most[14] = 94;
  EXPECT_TRUE(Look(watch, MeasureLoad(Mixture(10, 9), most), 200).empty());
  EXPECT_TRUE(Look(watch, MeasureLoad(ModelConfig{.num_hidden_layers = 2}, {}), 200).empty());
}

}  // namespace
}  // namespace muster
