#include "trainer/model/kv_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/model/llama.h"
#include "trainer/model/testing/model_testing.h"

namespace muster {
namespace {

// Positions first .. first + count - 1, each holding its own number: [1, 1, count, 1].
at::Tensor Numbers(std::int64_t first, std::int64_t count) {
  return at::arange(first, first + count, at::kFloat).view({1, 1, count, 1});
}

TEST(BlockCache, ReturnsAllPositionsInOrderWhileItGrows) {
  BlockCache cache;
  for (std::int64_t at = 0, count = 1; at < 300; at += count, count = count % 7 + 1) {
    const BlockCache::Held held = cache.Append(Numbers(at, count), -Numbers(at, count));
    EXPECT_TRUE(at::equal(held.key, Numbers(0, at + count)));
    EXPECT_TRUE(at::equal(held.value, -Numbers(0, at + count)));
    EXPECT_EQ(cache.length(), at + count);
  }
}

TEST(BlockCache, HoldsNoMoreThanAWindowReachesBackTo) {
  BlockCache cache(100);
  std::int64_t largest = 0;
  for (std::int64_t at = 0; at < 5000; ++at) {
    const at::Tensor key = cache.Append(Numbers(at, 1), Numbers(at, 1)).key;
    const std::int64_t first = std::max<std::int64_t>(0, at - 99);
    ASSERT_TRUE(at::equal(key, Numbers(first, at - first + 1))) << at;
    largest = std::max<std::int64_t>(largest, key.storage().nbytes() / sizeof(float));
  }
  EXPECT_LE(largest, 256);
}

TEST(BlockCache, OfSeveralPositionsGivesTheFirstItsWholeWindow) {
  BlockCache cache(4);
  cache.Append(Numbers(0, 10), Numbers(0, 10));
  EXPECT_TRUE(at::equal(cache.Append(Numbers(10, 3), Numbers(10, 3)).key, Numbers(7, 6)));
}

TEST(BlockCache, GoesOnFromWhereItWasTruncated) {
  BlockCache cache;
  cache.Append(Numbers(0, 10), Numbers(0, 10));
  EXPECT_TRUE(cache.Truncate(4));
  EXPECT_EQ(cache.length(), 4);
  const at::Tensor key = cache.Append(Numbers(50, 2), Numbers(50, 2)).key;
  EXPECT_TRUE(at::equal(key, at::cat({Numbers(0, 4), Numbers(50, 2)}, 2)));
}

TEST(BlockCache, SaysWhenTheWindowLeftBehindWhatIsAskedFor) {
  BlockCache cache(4);
  for (std::int64_t at = 0; at < 200; ++at) cache.Append(Numbers(at, 1), Numbers(at, 1));
  EXPECT_FALSE(cache.Truncate(3));
  EXPECT_EQ(cache.length(), 200) << "nothing has changed";
  EXPECT_TRUE(cache.Truncate(199));
  EXPECT_TRUE(at::equal(cache.Append(Numbers(7, 1), Numbers(7, 1)).key,
                        at::cat({Numbers(196, 3), Numbers(7, 1)}, 2)));
}

struct Kind {
  const char* name;
  std::int64_t kv_heads;
  std::optional<std::int64_t> window;
};

class CachedBlock : public testing::TestWithParam<Kind> {};

TEST_P(CachedBlock, GivesInPiecesWhatItGivesAtOnce) {
  ModelConfig config = OddConfig(1);
  config.num_key_value_heads = GetParam().kv_heads;
  config.sliding_window = GetParam().window;
  at::manual_seed(5);
  const BlockWeights weights = RandomBlock(config, at::kDouble);
  RotaryTable rotary(config);
  const at::Tensor hidden = at::randn({2, 90, config.hidden_size}, at::kDouble);
  const at::Tensor whole = BlockForward(config, 0, &rotary, hidden, weights);
  BlockCache cache(config.sliding_window);
  std::vector<at::Tensor> pieces;
  for (std::int64_t at = 0, count = 5; at < 90; at += count, count = at < 40 ? 6 : 1) {
    pieces.push_back(
        BlockForward(config, 0, &rotary, hidden.narrow(1, at, count), weights, {{&cache}}));
  }
  EXPECT_LE(RelativeDifference(at::cat(pieces, 1), whole), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CachedBlock,
                         testing::Values(Kind{"full", 4, {}}, Kind{"grouped", 2, {}},
                                         Kind{"single", 1, {}}, Kind{"window", 2, 7},
                                         Kind{"window_of_one", 2, 1}),
                         [](const auto& info) { return std::string(info.param.name); });

// Where angles depend on the length, a text that grows has those of its length throughout.
TEST_P(CachedBlock, OfATextThatGrowsIsThatOfTheWholeText) {
  ModelConfig config = OddConfig(1);
  config.num_key_value_heads = GetParam().kv_heads;
  config.sliding_window = GetParam().window;
  config.max_position_embeddings = 9;
  config.rope_scaling = RopeScaling{.kind = RopeKind::kDynamic, .factor = 3};
  at::manual_seed(5);
  const BlockWeights weights = RandomBlock(config, at::kDouble);
  RotaryTable rotary(config);
  const at::Tensor hidden = at::randn({2, 20, config.hidden_size}, at::kDouble);
  const auto last_of = [&](std::int64_t row, std::int64_t length) {
    const at::Tensor text = hidden.narrow(0, row, 1).narrow(1, 0, length);
    return BlockForward(config, 0, &rotary, text, weights).select(1, length - 1);
  };
  std::vector<BlockCache> caches(2, BlockCache(config.sliding_window));
  // The first piece of a prompt of six has the angles of all of it.
  const std::int64_t prompt = 6;
  for (const std::int64_t begin : {0, 4}) {
    const at::Tensor piece = hidden.narrow(0, 0, 1).narrow(1, begin, begin == 0 ? 4 : 2);
    BlockForward(config, 0, &rotary, piece, weights, {{&caches[0]}}, {{prompt}});
  }
  BlockForward(config, 0, &rotary, hidden.narrow(0, 1, 1).narrow(1, 0, 12), weights,
               {{&caches[1]}});
  for (std::int64_t step = 0; step < 8; ++step) {
    const at::Tensor next =
        at::stack({hidden[0].narrow(0, prompt + step, 1), hidden[1].narrow(0, 12 + step, 1)});
    const at::Tensor got =
        BlockForward(config, 0, &rotary, next, weights, {{&caches[0], &caches[1]}});
    EXPECT_LE(RelativeDifference(got[0], last_of(0, prompt + step + 1)), 1e-12) << step;
    EXPECT_LE(RelativeDifference(got[1], last_of(1, 12 + step + 1)), 1e-12) << step;
  }
}

TEST(BlockForward, OfAWindowSeesNothingBeyondIt) {
  ModelConfig config = OddConfig(1);
  config.sliding_window = 4;
  at::manual_seed(6);
  const BlockWeights weights = RandomBlock(config, at::kDouble);
  RotaryTable rotary(config);
  const at::Tensor hidden = at::randn({1, 12, config.hidden_size}, at::kDouble);
  at::Tensor changed = hidden.clone();
  changed.select(1, 3).add_(1.0);
  const at::Tensor a = BlockForward(config, 0, &rotary, hidden, weights);
  const at::Tensor b = BlockForward(config, 0, &rotary, changed, weights);
  EXPECT_TRUE(at::equal(a.narrow(1, 7, 5), b.narrow(1, 7, 5)));
  EXPECT_FALSE(at::allclose(a.select(1, 6), b.select(1, 6), 1e-6, 1e-6));
}

}  // namespace
}  // namespace muster
