// Adapters in the ways that hold frozen weights apart from where they are used, or train in fp16:
// to offload or to lose the gang changes no bit, and fp16 rounds as it does without adapters.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/parity/gang_run.h"

namespace muster::parity {
namespace {

GangOptions WithAdapters(int world_size, int steps, const FsdpSpec& fsdp) {
  GangOptions options{.world_size = world_size, .steps = steps, .fsdp = fsdp, .ranks_per_node = 2};
  LoraSpec& lora = options.model.lora.emplace();
  lora.r = 4;
  lora.alpha = 6;
  return options;
}

struct Case {
  std::string name;
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  int world_size = 2;
  MixedPrecision precision = MixedPrecision::kBf16;
  bool quantized = true;
  std::vector<std::string> whole = {};  // modules_to_save
};

void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

std::vector<Case> Cases() {
  using enum ShardingStrategy;
  return {{.name = "qlora_1", .world_size = 1},
          {.name = "qlora_2"},
          {.name = "qlora_3", .world_size = 3},
          {.name = "qlora_fp16_2", .precision = MixedPrecision::kFp16},
          {.name = "qlora_grad_op_2", .strategy = kShardGradOp},
          {.name = "qlora_hybrid_4", .strategy = kHybridShard, .world_size = 4},
          {.name = "qlora_replicas_2", .strategy = kNoShard},
          {.name = "lora_2", .quantized = false},
          {.name = "lora_whole_3",
           .world_size = 3,
           .quantized = false,
           .whole = {"embed_tokens", "lm_head"}}};
}

class FrozenOffload : public testing::TestWithParam<Case> {
 protected:
  // Two ranks to a host; all weights and gradients travel.
  static GangOptions Options(int steps) {
    const Case& way = GetParam();
    GangOptions options = WithAdapters(
        way.world_size, steps, {.strategy = way.strategy, .mixed_precision = way.precision});
    options.shares_memory = false;
    options.loss_scale = way.precision == MixedPrecision::kFp16 ? 64 : 0;
    if (way.quantized) options.model.quantization.emplace();
    options.model.lora->modules_to_save = way.whole;
    return options;
  }
  static GangOptions Offloaded(int steps) {
    GangOptions options = Options(steps);
    options.apart_from_host = true;
    options.fsdp.cpu_offload = true;
    options.fsdp.activation_checkpointing = ActivationCheckpointing::kFullOffload;
    return options;
  }
  // Replicas add gradients up in another order where the shards are in host memory.
  static void ExpectSame(const std::vector<RankRun>& got, const std::vector<RankRun>& want) {
    const ShardingStrategy strategy = GetParam().strategy;
    for (std::size_t r = 0; r < want.size(); ++r) {
      EXPECT_EQ(Losses(got[r]), Losses(want[r])) << "rank " << r;
      if (strategy == ShardingStrategy::kNoShard || strategy == ShardingStrategy::kHybridShard)
        continue;
      EXPECT_TRUE(got[r].arrays == want[r].arrays) << "rank " << r;
    }
  }
};

TEST_P(FrozenOffload, ChangesNoBit) { ExpectSame(RunGang(Offloaded(4)), RunGang(Options(4))); }

// The frozen weights are read again into host memory, and gathered from there.
TEST_P(FrozenOffload, AGangThatIsFormedAgainHasTheSameBits) {
  if (GetParam().world_size == 1) return;  // nobody is lost
  GangOptions broken = Offloaded(4);
  broken.broken_step = 2;
  ExpectSame(RunGang(broken), RunGang(Offloaded(4)));
}

INSTANTIATE_TEST_SUITE_P(Ways, FrozenOffload, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

class HalfAdapters : public testing::TestWithParam<bool> {
 protected:
  static GangOptions Options(int steps, MixedPrecision precision = MixedPrecision::kFp16) {
    GangOptions options = WithAdapters(2, steps, {.mixed_precision = precision});
    options.loss_scale = 64;
    if (GetParam()) options.model.quantization.emplace();
    return options;
  }
};

TEST_P(HalfAdapters, Fp16StaysWithFp64) {
  const std::vector<RankRun> exact = RunGang(Options(4, MixedPrecision::kFp64));
  const std::vector<RankRun> half = RunGang(Options(4));
  for (std::size_t step = 0; step < 4; ++step) {
    EXPECT_FALSE(half[0].numbers[step].overflow);
    EXPECT_LE(Relative(half[0].numbers[step].loss, exact[0].numbers[step].loss), 5e-3);
    EXPECT_LE(Relative(half[0].numbers[step].grad_norm, exact[0].numbers[step].grad_norm), 5e-2);
  }
}

// The scale divides out: but for gradients too small for fp16 nothing depends on it.
TEST_P(HalfAdapters, AnotherScaleIsAnotherRoundingAtMost) {
  GangOptions options = Options(3);
  const std::vector<RankRun> one = RunGang(options);
  options.loss_scale = 512;
  const std::vector<RankRun> other = RunGang(options);
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_FALSE(other[0].numbers[step].overflow);
    EXPECT_LE(Relative(other[0].numbers[step].loss, one[0].numbers[step].loss), 1e-3);
    EXPECT_LE(Relative(other[0].numbers[step].grad_norm, one[0].numbers[step].grad_norm), 1e-2);
  }
}

TEST_P(HalfAdapters, ResumedEqualsUndisturbed) {
  const std::vector<RankRun> whole = RunGang(Options(5));
  const std::vector<RankRun> before = RunGang(Options(3));
  GangOptions rest = Options(2);
  rest.first_step = 3;
  rest.resume_from = &before;
  rest.loss_scale = before[0].loss_scale;
  const std::vector<RankRun> after = RunGang(rest);
  ExpectResumedAlike(whole, after, rest.first_step);
}

TEST_P(HalfAdapters, AnOverflowLeavesTheAdaptersAndHalvesTheScale) {
  GangOptions options = Options(0);
  options.loss_scale = 0x1p24;
  const std::vector<RankRun> before = RunGang(options);
  options.steps = 1;
  const std::vector<RankRun> after = RunGang(options);
  EXPECT_TRUE(after[0].numbers[0].overflow);
  EXPECT_TRUE(before[0].arrays == after[0].arrays);
  EXPECT_EQ(after[0].loss_scale, before[0].loss_scale / 2);
}

INSTANTIATE_TEST_SUITE_P(Bases, HalfAdapters, testing::Bool(),
                         [](const auto& info) { return info.param ? "qlora" : "lora"; });

}  // namespace
}  // namespace muster::parity
