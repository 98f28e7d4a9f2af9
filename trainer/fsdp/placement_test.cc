#include "trainer/fsdp/placement.h"

#include <gtest/gtest.h>

#include <set>

namespace muster {
namespace {

ModelConfig Mixture() {
  ModelConfig config;
  config.architecture = "MixtralForCausalLM";
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_hidden_layers = 5;
  config.num_attention_heads = config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.vocab_size = 64;
  config.experts = {.count = 6, .per_token = 2, .intermediate_size = 48};
  return config;
}

TEST(Placement, AtMostTwoUnitsOfBlocksAreUnshardedAtOnce) {
  const Placement placed = PlaceUnits(Mixture(), {}, {.ranks = 2});
  const std::vector<FlatUnit>& units = placed.trained.units();
  ASSERT_EQ(units.size(), 12u);  // of each block two, its experts apart
  std::set<std::int64_t> places;
  std::int64_t experts = 0, others = 0;
  for (std::size_t u = 1; u + 1 < units.size(); ++u) {
    places.insert(placed.gathered.begins[u]);
    (units[u].blocks.part == BlockPart::kExperts ? experts : others) = units[u].flat_count;
    EXPECT_NE(placed.gathered.begins[u], placed.gathered.begins[u + 1]) << units[u].name;
  }
  EXPECT_EQ(places.size(), 2u);
  EXPECT_EQ(placed.gathered.buffer.count,
            experts + others + units.front().flat_count + units.back().flat_count);
}

}  // namespace
}  // namespace muster
