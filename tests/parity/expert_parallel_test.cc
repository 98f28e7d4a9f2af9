// Experts divided among ranks, trained or with adapters: the numbers of a run that does not divide
// them, the same bits however they travel, and state that either takes from the other.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/parity/gang_run.h"
#include "trainer/fsdp/state_plan.h"

namespace muster::parity {
namespace {

struct Case {
  std::string name;
  int world_size = 2;
  int ways = 2;
  Family family = Family::kQwen3Moe;
  int experts = 4;
  FsdpSpec fsdp = {};
  bool shares_memory = true;
  bool apart_from_host = false;
  std::vector<std::string> adapters = {};  // lora.target_modules; empty: all is trained
  bool quantized = false;                  // what is frozen
  int steps = 20;

  GangOptions Gang(MixedPrecision precision, int steps) const {
    GangOptions gang{.world_size = world_size,
                     .steps = steps,
                     .model = {.blocks = 3, .experts = experts, .family = family},
                     .fsdp = fsdp,
                     .ranks_per_node = world_size > 2 ? world_size / 2 : 1,
                     .apart_from_host = apart_from_host,
                     .shares_memory = shares_memory};
    gang.fsdp.mixed_precision = precision;
    gang.fsdp.expert_parallel = ways;
    if (!adapters.empty())
      gang.model.lora = LoraSpec{.r = 3, .alpha = 6, .target_modules = adapters};
    if (quantized) gang.model.quantization.emplace();
    return gang;
  }
};

void PrintTo(const Case& which, std::ostream* out) { *out << which.name; }

const std::vector<std::string> kOnExperts = {"o_proj", "mlp.experts.gate_up_proj",
                                             "mlp.experts.down_proj"};

std::vector<Case> Cases() {
  using enum ShardingStrategy;
  return {
      {.name = "two"},
      {.name = "two_sockets", .shares_memory = false},
      {.name = "four_all", .world_size = 4, .ways = 4},
      {.name = "four_halves", .world_size = 4},
      {.name = "four_halves_sockets", .world_size = 4, .shares_memory = false},
      {.name = "six_in_threes", .world_size = 6, .ways = 3, .experts = 6, .shares_memory = false},
      // A token has most of the experts, and a rank gets rows whatever the routers decide.
      {.name = "olmoe", .family = Family::kOlmoe},
      {.name = "qwen2_moe", .family = Family::kQwen2Moe},
      {.name = "mixtral", .world_size = 3, .ways = 3, .family = Family::kMixtral, .experts = 3},
      // With many experts most get no row, and some ranks none at all.
      {.name = "one_expert_each", .world_size = 4, .ways = 4, .experts = 64},
      {.name = "once_per_step",
       .world_size = 4,
       .fsdp = {.reduce_every_micro_batch = false},
       .shares_memory = false},
      {.name = "grad_op", .world_size = 4, .fsdp = {.strategy = kShardGradOp}},
      {.name = "grad_op_sockets", .fsdp = {.strategy = kShardGradOp}, .shares_memory = false},
      {.name = "hybrid", .world_size = 4, .fsdp = {.strategy = kHybridShard}},
      {.name = "hybrid_zero2_sockets",
       .world_size = 4,
       .fsdp = {.strategy = kHybridShardZero2},
       .shares_memory = false},
      {.name = "full_checkpointing",
       .world_size = 4,
       .fsdp = {.activation_checkpointing = ActivationCheckpointing::kFull},
       .shares_memory = false},
      {.name = "offload",
       .world_size = 4,
       .fsdp = {.activation_checkpointing = ActivationCheckpointing::kFullOffload,
                .cpu_offload = true},
       .shares_memory = false,
       .apart_from_host = true},
      {.name = "lora", .adapters = kOnExperts, .steps = 6},
      {.name = "qlora_sockets",
       .fsdp = {.activation_checkpointing = ActivationCheckpointing::kFull},
       .shares_memory = false,
       .adapters = kOnExperts,
       .quantized = true,
       .steps = 6},
  };
}

// Adapters on experts, whose matrices are frozen then, and on what is beside them.
std::vector<Case> AdapterCases() {
  using enum ShardingStrategy;
  return {
      {.name = "lora_four_all_sockets",
       .world_size = 4,
       .ways = 4,
       .shares_memory = false,
       .adapters = kOnExperts},
      {.name = "lora_shared_expert",
       .family = Family::kQwen2Moe,
       .shares_memory = false,
       .adapters = {"gate_proj", "shared_expert_gate", "mlp.experts.down_proj"}},
      {.name = "lora_beside_experts", .shares_memory = false, .adapters = {"q_proj"}},
      {.name = "lora_one_expert_each",
       .world_size = 4,
       .ways = 4,
       .experts = 64,
       .fsdp = {.reduce_every_micro_batch = false},
       .shares_memory = false,
       .adapters = kOnExperts},
      {.name = "lora_hybrid",
       .world_size = 4,
       .fsdp = {.strategy = kHybridShard},
       .shares_memory = false,
       .adapters = kOnExperts},
      {.name = "qlora_grad_op",
       .fsdp = {.strategy = kShardGradOp},
       .adapters = kOnExperts,
       .quantized = true},
      {.name = "qlora_gpt_oss",
       .family = Family::kGptOss,
       .shares_memory = false,
       .adapters = kOnExperts,
       .quantized = true},
      {.name = "qlora_offload",
       .world_size = 4,
       .fsdp = {.activation_checkpointing = ActivationCheckpointing::kFullOffload,
                .cpu_offload = true},
       .shares_memory = false,
       .apart_from_host = true,
       .adapters = kOnExperts,
       .quantized = true},
  };
}

class ExpertParallel : public testing::TestWithParam<Case> {};

void ExpectWhatUndividedExpertsCompute(GangOptions options) {
  const std::vector<RankRun> divided = RunGang(options);
  options.fsdp.expert_parallel = 1;
  const std::vector<RankRun> whole = RunGang(options);
  for (std::size_t r = 0; r < divided.size(); ++r) {
    for (int step = 0; step < options.steps; ++step) {
      const StepNumbers &got = divided[r].numbers[step], &want = whole[r].numbers[step];
      EXPECT_LE(Relative(got.loss, want.loss), 1e-12) << "step " << step;
      EXPECT_LE(Relative(got.grad_norm, want.grad_norm), 1e-11) << "step " << step;
    }
    if (options.evaluates) {
      EXPECT_LE(Relative(divided[r].evaluations.back().loss, whole[r].evaluations.back().loss),
                1e-12);
    }
    EXPECT_EQ(divided[r].next_tokens, whole[r].next_tokens);
  }
  // The export has every tensor in the order of the model, rounded to fp32.
  ASSERT_EQ(divided[0].exported.size(), whole[0].exported.size());
  for (std::size_t i = 0; i < whole[0].exported.size(); ++i) {
    ASSERT_NEAR(divided[0].exported[i], whole[0].exported[i], 1e-6) << i;
  }
}

TEST_P(ExpertParallel, ComputesWhatUndividedExpertsDo) {
  GangOptions options = GetParam().Gang(MixedPrecision::kFp64, GetParam().steps);
  options.evaluates = true;
  ExpectWhatUndividedExpertsCompute(options);
}

using AdaptedExpertParallel = ExpertParallel;

TEST_P(AdaptedExpertParallel, ComputesWhatUndividedExpertsDo) {
  ExpectWhatUndividedExpertsCompute(GetParam().Gang(MixedPrecision::kFp64, 4));
}

TEST(ExpertParallelState, OfAdaptersIsTheSameInFp32) {
  for (const bool quantized : {false, true}) {
    GangOptions options =
        Case{.shares_memory = false, .adapters = kOnExperts, .quantized = quantized}.Gang(
            MixedPrecision::kFp32, 20);
    const std::vector<RankRun> divided = RunGang(options);
    options.fsdp.expert_parallel = 1;
    const std::vector<RankRun> whole = RunGang(options);
    for (int step = 0; step < options.steps; ++step) {
      EXPECT_LE(Relative(divided[0].numbers[step].loss, whole[0].numbers[step].loss), 1e-6)
          << "step " << step;
    }
  }
}

TEST_P(ExpertParallel, GivesTheSameBitsEachTimeAndHoweverRowsTravel) {
  GangOptions options = GetParam().Gang(MixedPrecision::kBf16, 2);
  const std::vector<RankRun> first = RunGang(options);
  const auto expect_alike = [&](const std::vector<RankRun>& other, const char* what) {
    for (std::size_t r = 0; r < first.size(); ++r) {
      EXPECT_TRUE(first[r].arrays == other[r].arrays) << what;
      EXPECT_EQ(Losses(first[r]), Losses(other[r])) << what;
    }
  };
  expect_alike(RunGang(options), "again");
  GangOptions other = options;
  if (!options.apart_from_host) {
    other.shares_memory = !options.shares_memory;
    expect_alike(RunGang(other), "another transport");
  }
  for (const ActivationCheckpointing level :
       {ActivationCheckpointing::kNone, ActivationCheckpointing::kFull}) {
    other = options;
    other.fsdp.activation_checkpointing = level;
    expect_alike(RunGang(other), "another level");
  }
}

TEST_P(ExpertParallel, AStepThatLostItsGangLeavesNoTrace) {
  GangOptions options = GetParam().Gang(MixedPrecision::kFp32, 3);
  const std::vector<RankRun> whole = RunGang(options);
  options.broken_step = 1;
  const std::vector<RankRun> broken = RunGang(options);
  options.broken_step = -1;
  options.evaluates = true;
  options.broken_evaluation = 1;
  const std::vector<RankRun> evaluated = RunGang(options);
  for (std::size_t r = 0; r < whole.size(); ++r) {
    EXPECT_TRUE(whole[r].arrays == broken[r].arrays);
    EXPECT_TRUE(whole[r].arrays == evaluated[r].arrays);
  }
}

INSTANTIATE_TEST_SUITE_P(Gangs, ExpertParallel, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Gangs, AdaptedExpertParallel, testing::ValuesIn(AdapterCases()),
                         [](const auto& info) { return info.param.name; });

std::vector<ShardArray> ArraysOf(const GangOptions& gang, int rank) {
  return PlanSegment("", TestConfig(gang.model), EngineOptions(gang), {rank, gang.world_size})
      ->arrays;
}

// The state of `runs` cut for another gang: tensor by tensor, as a checkpoint is read.
std::vector<RankRun> CutAnew(const GangOptions& from, const std::vector<RankRun>& runs,
                             const GangOptions& to) {
  // By kind and tensor.
  std::map<std::pair<std::string, std::string>, std::vector<std::byte>> tensors;
  const auto each = [&](const GangOptions& gang, int rank, auto visit) {
    const std::vector<ShardArray> arrays = ArraysOf(gang, rank);
    for (std::size_t a = 0; a < arrays.size(); ++a) {
      const std::size_t size = ElementSize(arrays[a].type);
      for (const TensorInterval& interval : arrays[a].intervals) {
        auto& tensor = tensors[{std::string(arrays[a].kind()), interval.tensor}];
        tensor.resize(static_cast<std::size_t>(ElementCount(interval.shape)) * size);
        visit(a, static_cast<std::size_t>(interval.array_offset) * size,
              tensor.data() + static_cast<std::size_t>(interval.begin) * size,
              static_cast<std::size_t>(interval.count) * size);
      }
    }
  };
  for (int rank = 0; rank < from.world_size; ++rank) {
    each(from, rank, [&](std::size_t a, std::size_t at, std::byte* tensor, std::size_t bytes) {
      std::memcpy(tensor, runs[rank].arrays[a].data() + at, bytes);
    });
  }
  std::vector<RankRun> cut(to.world_size);
  for (int rank = 0; rank < to.world_size; ++rank) {
    for (const ShardArray& array : ArraysOf(to, rank)) {
      cut[rank].arrays.emplace_back(static_cast<std::size_t>(array.count) *
                                    ElementSize(array.type));
    }
    each(to, rank, [&](std::size_t a, std::size_t at, std::byte* tensor, std::size_t bytes) {
      std::memcpy(cut[rank].arrays[a].data() + at, tensor, bytes);
    });
  }
  return cut;
}

// Four ranks, then six: a gang takes the state of the other with experts divided or not.
using Divisions = std::vector<std::pair<int, int>>;  // before and after
void ExpectToGoOnWithAnotherDivision(const Divisions& divisions,
                                     const std::vector<std::string>& adapters) {
  const auto gang = [&](int world_size, int ways, int first_step, int steps) {
    GangOptions options =
        Case{.world_size = world_size, .ways = ways, .experts = 6, .adapters = adapters}.Gang(
            MixedPrecision::kFp64, steps);
    options.first_step = first_step;
    options.shared_batches = 12;  // as many for each rank of either
    return options;
  };
  const std::vector<RankRun> whole = RunGang(gang(4, 1, 0, 6));
  for (const auto& [before, after] : divisions) {
    const GangOptions first = gang(4, before, 0, 3);
    GangOptions rest = gang(6, after, 3, 3);
    const std::vector<RankRun> cut = CutAnew(first, RunGang(first), rest);
    rest.resume_from = &cut;
    const std::vector<RankRun> resumed = RunGang(rest);
    for (int step = 0; step < 3; ++step) {
      EXPECT_LE(Relative(resumed[0].numbers[step].loss, whole[0].numbers[3 + step].loss), 1e-12)
          << before << " to " << after << ", step " << step;
    }
  }
}

TEST(ExpertParallelState, GoesOnWithAnotherDivisionAndNumberOfRanks) {
  ExpectToGoOnWithAnotherDivision({{2, 1}, {1, 2}, {2, 6}, {2, 3}}, {});
}

TEST(ExpertParallelState, OfAdaptersGoesOnWithAnotherDivisionAndNumberOfRanks) {
  ExpectToGoOnWithAnotherDivision({{1, 2}, {2, 3}}, kOnExperts);
}

// One rank has all experts, and trains what two and four do that divide them.
TEST(ExpertParallelState, OfAdaptersIsTheSameAtEveryNumberOfRanks) {
  const auto gang = [](int world_size, int ways) {
    GangOptions options = Case{.world_size = world_size, .ways = ways, .adapters = kOnExperts}.Gang(
        MixedPrecision::kFp64, 6);
    options.shared_batches = 4;
    return options;
  };
  const RankRun alone = RunGang(gang(1, 4))[0];
  for (const auto& [world_size, ways] : {std::pair(2, 2), {4, 4}}) {
    const RankRun divided = RunGang(gang(world_size, ways))[0];
    for (std::size_t step = 0; step < alone.numbers.size(); ++step) {
      EXPECT_LE(Relative(divided.numbers[step].loss, alone.numbers[step].loss), 1e-12)
          << world_size << " ranks, step " << step;
      EXPECT_LE(Relative(divided.numbers[step].grad_norm, alone.numbers[step].grad_norm), 1e-11);
    }
  }
}

// A rank holds, gathers and adds up the gradients of its own experts alone.
TEST(ExpertParallelState, TakesTheMemoryOfItsOwnExperts) {
  const auto placed = [](int ways, bool shares, const std::vector<std::string>& adapters = {}) {
    const GangOptions gang =
        Case{.world_size = 4, .ways = ways, .experts = 64, .adapters = adapters}.Gang(
            MixedPrecision::kFp32, 0);
    return PlaceUnits(TestConfig(gang.model), EngineOptions(gang),
                      {.ranks = 4, .rank = 1, .expert_ways = ways, .shares_memory = shares});
  };
  const Placement whole = placed(1, false), divided = placed(4, false);
  const auto near = [](std::int64_t got, double want) {
    return std::abs(static_cast<double>(got) - want) < 0.2 * want;
  };
  EXPECT_TRUE(near(divided.gradients.slot_memory.bytes(),
                   static_cast<double>(whole.gradients.slot_memory.bytes()) / 4));
  EXPECT_LT(divided.gathered.buffer.bytes(), whole.gathered.buffer.bytes() / 2);
  EXPECT_TRUE(
      near(divided.state.gradient.bytes(), static_cast<double>(whole.state.gradient.bytes())));
  // In the one array of a host all experts lie.
  EXPECT_TRUE(near(placed(4, true).gathered.buffer.bytes(),
                   static_cast<double>(placed(1, true).gathered.buffer.bytes())));
  // Frozen experts likewise; adapters on them are whole on every rank.
  const Placement adapted = placed(4, false, {"mlp.experts.down_proj"});
  EXPECT_LT(adapted.frozen_gathered.buffer.bytes(),
            placed(1, false, {"mlp.experts.down_proj"}).frozen_gathered.buffer.bytes() / 2);
  EXPECT_EQ(adapted.gathered.buffer.bytes(),
            placed(1, false, {"mlp.experts.down_proj"}).gathered.buffer.bytes());
}

}  // namespace
}  // namespace muster::parity
