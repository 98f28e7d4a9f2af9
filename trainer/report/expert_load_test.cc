#include "trainer/report/expert_load.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/json.h"

namespace muster {
namespace {

// Three layers, the second one dense.
ModelConfig Mixture() {
  ModelConfig config;
  config.num_hidden_layers = 3;
  config.experts = {.count = 4, .per_token = 2, .sparse_layers = {true, false, true}};
  return config;
}

TEST(ExpertLoad, IsMeasuredInEachSparseLayer) {
  const ExpertLoad load = MeasureLoad(Mixture(), {2, 2, 2, 2, 5, 0, 3, 0});
  EXPECT_EQ(load.layers, (std::vector<std::int64_t>{0, 2}));
  ASSERT_EQ(load.of_layer.size(), 2u);
  EXPECT_EQ(load.of_layer[0].largest_share, 0.25);
  EXPECT_EQ(load.of_layer[0].smallest_share, 0.25);
  EXPECT_NEAR(load.of_layer[0].entropy, 1, 1e-12);
  EXPECT_EQ(load.of_layer[0].idle, 0);
  EXPECT_EQ(load.of_layer[1].largest_share, 0.625);
  EXPECT_EQ(load.of_layer[1].smallest_share, 0);
  EXPECT_EQ(load.of_layer[1].idle, 2);
  const double bits = -(0.625 * std::log2(0.625) + 0.375 * std::log2(0.375));
  EXPECT_NEAR(load.of_layer[1].entropy, bits / 2, 1e-12);
  EXPECT_EQ(load.worst.largest_share, 0.625);
  EXPECT_EQ(load.worst.smallest_share, 0);
  EXPECT_EQ(load.worst.entropy, load.of_layer[1].entropy);
  EXPECT_EQ(load.worst.idle, 2);
}

TEST(ExpertLoad, HasNoLayersWithoutExperts) {
  EXPECT_TRUE(MeasureLoad(ModelConfig{.num_hidden_layers = 2}, {}).layers.empty());
}

// A step of padding alone, and the only expert of a layer.
TEST(ExpertLoad, IsANumberWhereNothingWasChosenOrNothingCanBe) {
  const ExpertLoad none = MeasureLoad(Mixture(), {0, 0, 0, 0, 1, 1, 1, 1});
  EXPECT_EQ(none.of_layer[0].largest_share, 0);
  EXPECT_EQ(none.of_layer[0].entropy, 0);
  ModelConfig one = Mixture();
  one.experts->count = one.experts->per_token = 1;
  const ExpertLoad load = MeasureLoad(one, {7, 7});
  EXPECT_EQ(load.worst.largest_share, 1);
  EXPECT_EQ(load.worst.entropy, 1);
}

TEST(ExpertsJson, HasTheShareOfEachExpertByLayer) {
  const ExpertLoad load = MeasureLoad(Mixture(), {2, 2, 2, 2, 1, 0, 2, 0});
  const auto json = nlohmann::json::parse(ExpertsJson(load, 7, 3));
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["generation"], 3);
  EXPECT_EQ(json["layers"]["0"], (std::vector<double>{0.25, 0.25, 0.25, 0.25}));
  EXPECT_EQ(json["layers"]["2"], (std::vector<double>{0.3333, 0, 0.6667, 0}));
  EXPECT_EQ(json["layers"].size(), 2u);
}

}  // namespace
}  // namespace muster
