#include "trainer/model/llama.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trainer/model/testing/model_testing.h"

namespace muster {
namespace {

ModelConfig SmallConfig(std::int64_t kv_heads) {
  ModelConfig config;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 4;
  config.num_key_value_heads = kv_heads;
  config.head_dim = 8;
  config.vocab_size = 64;
  return config;
}

BlockWeights RandomBlock(const ModelConfig& config) {
  at::manual_seed(3);
  return RandomBlock(config, at::kFloat);
}

TEST(BlockForward, LaterPositionsDoNotReachEarlierOnes) {
  const ModelConfig config = SmallConfig(2);
  const BlockWeights weights = RandomBlock(config);
  RotaryTable rotary(config);
  const at::Tensor hidden = at::randn({2, 9, 32});
  const at::Tensor whole = BlockForward(config, 0, &rotary, hidden, weights);
  const at::Tensor prefix = BlockForward(config, 0, &rotary, hidden.narrow(1, 0, 5), weights);
  EXPECT_TRUE(at::allclose(whole.narrow(1, 0, 5), prefix, 1e-5, 1e-6));
  EXPECT_FALSE(at::allclose(whole.narrow(1, 4, 5), whole.narrow(1, 0, 5), 1e-3, 1e-3));
}

TEST(BlockForward, OfOnePositionFollowsItsDefinition) {
  // With a single position attention copies the value, and the rest can be written down.
  const ModelConfig config = SmallConfig(4);
  const BlockWeights w = RandomBlock(config);
  RotaryTable rotary(config);
  const at::Tensor x = at::randn({1, 1, 32});
  const auto norm = [](const at::Tensor& v, const at::Tensor& weight) {
    return v / (v.square().mean(-1, true) + 1e-6).sqrt() * weight;
  };
  const at::Tensor value =
      at::matmul(norm(x, w.attention_norm), w.qkv.weight.narrow(0, 64, 32).t());
  const at::Tensor middle = x + at::matmul(value, w.output.weight.t());
  const at::Tensor both = at::matmul(norm(middle, w.feed_forward_norm), w.gate_up.weight.t());
  const at::Tensor gate = both.narrow(2, 0, 48), up = both.narrow(2, 48, 48);
  const at::Tensor want = middle + at::matmul(gate * at::sigmoid(gate) * up, w.down.weight.t());
  EXPECT_TRUE(at::allclose(BlockForward(config, 0, &rotary, x, w), want, 1e-5, 1e-6));
}

TEST(BlockForward, KnowsTheOrderOfEarlierPositions) {
  const ModelConfig config = SmallConfig(2);
  const BlockWeights weights = RandomBlock(config);
  RotaryTable rotary(config);
  const at::Tensor hidden = at::randn({1, 3, 32});
  const at::Tensor swapped = at::stack({hidden[0][1], hidden[0][0], hidden[0][2]}).unsqueeze(0);
  const at::Tensor last = BlockForward(config, 0, &rotary, hidden, weights).narrow(1, 2, 1);
  EXPECT_FALSE(at::allclose(BlockForward(config, 0, &rotary, swapped, weights).narrow(1, 2, 1),
                            last, 1e-4, 1e-5));
}

TEST(BlockForward, SharedKeyHeadsEqualRepeatedOnes) {
  const ModelConfig grouped = SmallConfig(2);
  const ModelConfig full = SmallConfig(4);
  const BlockWeights weights = RandomBlock(grouped);
  BlockWeights repeated = weights;
  const std::vector<at::Tensor> parts = weights.qkv.weight.split_with_sizes({32, 16, 16});
  const auto repeat = [](const at::Tensor& heads) {
    return heads.view({2, 1, 8, 32}).expand({2, 2, 8, 32}).reshape({32, 32});
  };
  repeated.qkv.weight = at::cat({parts[0], repeat(parts[1]), repeat(parts[2])});
  RotaryTable rotary(grouped);
  const at::Tensor hidden = at::randn({1, 7, 32});
  EXPECT_TRUE(at::allclose(BlockForward(grouped, 0, &rotary, hidden, weights),
                           BlockForward(full, 0, &rotary, hidden, repeated), 1e-5, 1e-6));
}

TEST(RotaryTable, GrowingKeepsWhatWasThere) {
  RotaryTable rotary(SmallConfig(2));
  const at::Tensor before = rotary.Of(4, 0, 4).cos.clone();
  const at::Tensor grown = rotary.Of(100, 0, 100).sin;
  EXPECT_TRUE(at::equal(before, rotary.Of(4, 0, 4).cos));
  EXPECT_NEAR(grown[1][0].item<double>(), std::sin(1.0), 1e-6);
}

// Frequencies 1, 0.1, 0.01, 0.001: one is faster than the shortest wave, one between, two slower.
TEST(RotaryTable, Llama31SlowsDownWhatTurnsSlowly) {
  ModelConfig config = SmallConfig(2);
  config.head_dim = 8;
  config.rope_scaling = RopeScaling{.factor = 8,
                                    .low_freq_factor = 1,
                                    .high_freq_factor = 4,
                                    .original_max_position_embeddings = 128};
  RotaryTable rotary(config);
  const double share = (128 * 0.1 / (2 * M_PI) - 1) / 3;
  const double expected[] = {1, (1 - share) * 0.1 / 8 + share * 0.1, 0.01 / 8, 0.001 / 8};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(rotary.Of(2, 0, 2).sin[1][i].item<double>(), std::sin(expected[i]), 1e-7) << i;
  }
}

TEST(RotaryTable, RoundsToItsBufferType) {
  RotaryTable wide(SmallConfig(2)), rounded(SmallConfig(2), {.buffer = at::kBFloat16});
  EXPECT_EQ(rounded.Of(9, 0, 9).cos.scalar_type(), at::kFloat);
  EXPECT_TRUE(
      at::equal(rounded.Of(9, 0, 9).cos, wide.Of(9, 0, 9).cos.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_FALSE(at::equal(rounded.Of(9, 0, 9).cos, wide.Of(9, 0, 9).cos));
}

// sqrt(48) is 6.928; bf16 has every 32nd there.
TEST(EmbeddingMultiplier, IsRoundedWhereTheModelRoundsIt) {
  ModelConfig config = SmallConfig(2);
  config.embedding_multiplier = std::sqrt(48.0);
  EXPECT_EQ(EmbeddingMultiplier(config, at::kBFloat16), std::sqrt(48.0));
  config.rounds_embedding_multiplier = true;
  EXPECT_EQ(EmbeddingMultiplier(config, at::kBFloat16), 222.0 / 32);
  const at::Tensor embedding = at::ones({3, 4}, at::kBFloat16);
  const at::Tensor embedded = EmbedTokens(config, embedding, at::tensor({2, 0}, at::kLong));
  EXPECT_TRUE(at::equal(embedded, at::full({2, 4}, 222.0 / 32, at::kBFloat16)));
}

TEST(RmsNorm, ScalesToUnitRootMeanSquare) {
  const at::Tensor hidden = at::randn({3, 32}) * 5;
  const at::Tensor normed = RmsNorm(hidden, at::full({32}, 2.0), 1e-6);
  EXPECT_TRUE(at::allclose(normed.square().mean(-1), at::full({3}, 4.0), 1e-4, 1e-4));
}

}  // namespace
}  // namespace muster
