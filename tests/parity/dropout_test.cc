// Dropout of adapters in the sharded engine: its masks belong to the micro-batches of the training,
// whoever computes them, when, and how often.
#include <gtest/gtest.h>

#include <vector>

#include "tests/parity/gang_run.h"

namespace muster::parity {
namespace {

constexpr int kShared = 5;  // no number of ranks below divides it but one

GangOptions Options(int world_size, MixedPrecision precision, int steps, double dropout = 0.2) {
  LoraSpec lora;
  lora.r = 4;
  lora.alpha = 6;
  lora.dropout = dropout;
  GangOptions options{
      .world_size = world_size, .steps = steps, .fsdp = {.mixed_precision = precision}};
  options.model.lora = lora;
  options.shared_batches = kShared;
  return options;
}

TEST(AdapterDropout, EveryWorldSizeTrainsAlike) {
  const RankRun alone = RunGang(Options(1, MixedPrecision::kFp64, 6))[0];
  for (const int world_size : {2, 3}) {
    for (const bool shares_memory : {true, false}) {
      GangOptions options = Options(world_size, MixedPrecision::kFp64, 6);
      options.shares_memory = shares_memory;
      for (const RankRun& run : RunGang(options)) {
        for (std::size_t step = 0; step < alone.numbers.size(); ++step) {
          EXPECT_LE(Relative(run.numbers[step].loss, alone.numbers[step].loss), 1e-10)
              << world_size << " ranks, step " << step;
          EXPECT_LE(Relative(run.numbers[step].grad_norm, alone.numbers[step].grad_norm), 1e-9);
        }
      }
    }
  }
}

TEST(AdapterDropout, SharedExpertsAndDenseLayersDropAlikeWhereBlocksAreComputedAgain) {
  GangOptions options = Options(2, MixedPrecision::kFp32, 2);
  options.model.family = Family::kQwen2Moe;
  const std::vector<RankRun> kept = RunGang(options);
  options.fsdp.activation_checkpointing = ActivationCheckpointing::kFull;
  const std::vector<RankRun> again = RunGang(options);
  options.model.lora->target_modules = {"q_proj", "k_proj", "v_proj", "o_proj"};
  const std::vector<RankRun> attention = RunGang(options);
  for (std::size_t r = 0; r < kept.size(); ++r) {
    EXPECT_TRUE(kept[r].arrays == again[r].arrays);
    EXPECT_NE(Losses(kept[r]), Losses(attention[r]));
  }
}

TEST(AdapterDropout, MasksDifferFromStepToStepAndFromSeedToSeed) {
  GangOptions options = Options(1, MixedPrecision::kFp64, 1);
  const double loss = Losses(RunGang(options)[0])[0];
  options.seed = 43;
  EXPECT_GT(Relative(Losses(RunGang(options)[0])[0], loss), 1e-6);
  const double without = Losses(RunGang(Options(1, MixedPrecision::kFp64, 1, 0))[0])[0];
  EXPECT_GT(Relative(loss, without), 1e-6);
}

// What is evaluated has no number.
TEST(AdapterDropout, ABatchOfNoTrainingDropsNothing) {
  GangOptions options = Options(2, MixedPrecision::kFp64, 2);
  options.shared_batches = 0;
  const std::vector<RankRun> numberless = RunGang(options);
  options.model.lora->dropout = 0;
  const std::vector<RankRun> without = RunGang(options);
  for (std::size_t r = 0; r < without.size(); ++r) {
    EXPECT_TRUE(numberless[r].arrays == without[r].arrays);
    EXPECT_EQ(Losses(numberless[r]), Losses(without[r]));
  }
}

class AdapterDropoutBits : public testing::TestWithParam<MixedPrecision> {};

TEST_P(AdapterDropoutBits, RecomputationChangesNothing) {
  const std::vector<RankRun> kept = RunGang(Options(2, GetParam(), 3));
  for (const ActivationCheckpointing level :
       {ActivationCheckpointing::kNone, ActivationCheckpointing::kFull,
        ActivationCheckpointing::kFullOffload}) {
    GangOptions options = Options(2, GetParam(), 3);
    options.fsdp.activation_checkpointing = level;
    const std::vector<RankRun> again = RunGang(options);
    for (std::size_t r = 0; r < kept.size(); ++r) EXPECT_TRUE(kept[r].arrays == again[r].arrays);
  }
}

TEST_P(AdapterDropoutBits, ResumedEqualsUndisturbed) {
  const std::vector<RankRun> whole = RunGang(Options(2, GetParam(), 5));
  const std::vector<RankRun> before = RunGang(Options(2, GetParam(), 3));
  GangOptions rest = Options(2, GetParam(), 2);
  rest.first_step = 3;
  rest.resume_from = &before;
  const std::vector<RankRun> after = RunGang(rest);
  ExpectResumedAlike(whole, after, rest.first_step);
}

TEST_P(AdapterDropoutBits, QuantisedWeightsBesideThemChangeNoMask) {
  GangOptions options = Options(1, GetParam(), 2);
  options.model.quantization = QuantizationSpec{};
  const std::vector<RankRun> one = RunGang(options);
  options.fsdp.activation_checkpointing = ActivationCheckpointing::kFull;
  const std::vector<RankRun> again = RunGang(options);
  EXPECT_TRUE(one[0].arrays == again[0].arrays);
  options.model.lora->dropout = 0;
  EXPECT_NE(Losses(RunGang(options)[0]), Losses(one[0]));
}

INSTANTIATE_TEST_SUITE_P(Types, AdapterDropoutBits,
                         testing::Values(MixedPrecision::kFp32, MixedPrecision::kBf16),
                         [](const auto& info) {
                           return info.param == MixedPrecision::kFp32 ? "fp32" : "bf16";
                         });

}  // namespace
}  // namespace muster::parity
