// Frozen weights that outlive an engine: the next one reads nothing, and trains as if it had.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/testing/temp_dir.h"
#include "tests/parity/gang_run.h"
#include "trainer/fsdp/retained_weights.h"

namespace muster::parity {
namespace {

struct Way {
  std::string name;
  int world_size = 1;
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  bool shares_memory = true;
  bool offloads = false;
  bool apart_from_host = false;
  std::optional<QuantizationSpec> quantization = {};
  int expert_parallel = 1;  // above: of a mixture
};

std::vector<Way> Ways() {
  const QuantizationSpec once{.double_quant = false}, twice{.double_quant = true};
  const auto kGradOp = ShardingStrategy::kShardGradOp;
  const auto kFull = ShardingStrategy::kFullShard;
  return {
      {.name = "one_rank"},
      {.name = "one_rank_nf4", .quantization = twice},
      {.name = "one_host", .world_size = 2},
      {.name = "one_host_nf4", .world_size = 3, .quantization = twice},
      {.name = "hosts", .world_size = 2, .shares_memory = false},
      {.name = "hosts_nf4", .world_size = 3, .shares_memory = false, .quantization = once},
      {.name = "hosts_grad_op", .world_size = 2, .strategy = kGradOp, .shares_memory = false},
      {.name = "device", .world_size = 2, .shares_memory = false, .apart_from_host = true},
      {.name = "device_nf4",
       .world_size = 2,
       .shares_memory = false,
       .apart_from_host = true,
       .quantization = twice},
      {.name = "offloaded_nf4",
       .world_size = 2,
       .strategy = kFull,
       .shares_memory = false,
       .offloads = true,
       .apart_from_host = true,
       .quantization = twice},
      {.name = "offloaded_grad_op",
       .world_size = 2,
       .strategy = kGradOp,
       .shares_memory = false,
       .offloads = true,
       .apart_from_host = true},
      {.name = "experts_one_host_nf4",
       .world_size = 2,
       .quantization = twice,
       .expert_parallel = 2},
      {.name = "experts_hosts_nf4",
       .world_size = 2,
       .shares_memory = false,
       .quantization = twice,
       .expert_parallel = 2},
  };
}

class FrozenThatStay : public ::testing::TestWithParam<Way> {
 protected:
  FrozenThatStay() {
    const Way& way = GetParam();
    MakeShelves();
    options_.world_size = way.world_size;
    options_.steps = 2;
    options_.fsdp = {.strategy = way.strategy,
                     .expert_parallel = way.expert_parallel,
                     .mixed_precision = MixedPrecision::kFp32,
                     .cpu_offload = way.offloads};
    options_.apart_from_host = way.apart_from_host;
    options_.shares_memory = way.shares_memory;
    LoraSpec lora;
    lora.r = 4;
    lora.alpha = 6;
    if (way.expert_parallel > 1) {
      options_.model.family = Family::kQwen3Moe;
      options_.model.experts = 4;
      lora.target_modules = {"q_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
    }
    options_.model.lora = lora;
    options_.model.quantization = way.quantization;
    options_.model_dir = dir_.path();
    options_.shelves = &shelves_;
    WriteModel(options_.model, dir_.path());
  }

  bool lives_in_process() const { return GetParam().apart_from_host && !GetParam().offloads; }

  // The files of another model, with the same tensors.
  void ChangeFiles() {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto half = std::filesystem::file_size(entry.path()) / 2;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(half));
      file << std::string(half, '\0');
    }
  }

  static void ExpectEqual(const std::vector<RankRun>& got, const std::vector<RankRun>& want) {
    for (std::size_t rank = 0; rank < want.size(); ++rank) {
      EXPECT_EQ(Losses(got[rank]), Losses(want[rank])) << "rank " << rank;
      EXPECT_EQ(got[rank].arrays, want[rank].arrays) << "rank " << rank;
    }
  }

  // Empty ones, by rank; held_ and dropped_ are what their guardian hears.
  void MakeShelves() {
    shelves_.clear();
    for (int rank = 0; rank < GetParam().world_size; ++rank) {
      shelves_.emplace_back(
          RetainedWeights::Guardian{.hold =
                                        [this](const std::string& name, int file) {
                                          std::lock_guard lock(mutex_);
                                          held_.push_back(Another(name, file));
                                        },
                                    .drop =
                                        [this](const std::string& name) {
                                          std::lock_guard lock(mutex_);
                                          dropped_.push_back(name);
                                        }});
    }
  }

  static HeldSegment Another(const std::string& name, int file) {
    return {name, UniqueFd(::dup(file))};
  }

  TempDirForTest dir_;
  std::mutex mutex_;
  std::vector<HeldSegment> held_;
  std::vector<std::string> dropped_;
  std::vector<RetainedWeights> shelves_;
  GangOptions options_;
};

TEST_P(FrozenThatStay, AreNotReadAgain) {
  const std::vector<RankRun> first = RunGang(options_);
  EXPECT_FALSE(first[0].frozen_kept);
  ChangeFiles();
  const std::vector<RankRun> second = RunGang(options_);
  EXPECT_TRUE(second[0].frozen_kept);
  ExpectEqual(second, first);
}

TEST_P(FrozenThatStay, OfOtherFilesAreNotUsed) {
  const std::vector<RankRun> first = RunGang(options_);
  ChangeFiles();
  options_.frozen_source = 2;
  const std::vector<RankRun> second = RunGang(options_);
  EXPECT_FALSE(second[0].frozen_kept);
  EXPECT_NE(Losses(second[0]), Losses(first[0]));
  // What nobody will use again does not stay beside the new one.
  for (RetainedWeights& retained : shelves_) EXPECT_LE(retained.names().size(), 1U);
  EXPECT_EQ(dropped_.size(), lives_in_process() ? 0U : shelves_.size());
  options_.shelves = nullptr;
  ExpectEqual(second, RunGang(options_));
}

TEST_P(FrozenThatStay, AreThereForNewProcesses) {
  if (lives_in_process()) GTEST_SKIP() << "a device's memory ends with its process";
  const std::vector<RankRun> first = RunGang(options_);
  EXPECT_FALSE(held_.empty());
  MakeShelves();
  for (RetainedWeights& retained : shelves_) {
    for (const HeldSegment& each : held_) retained.Add(Another(each.name, each.fd.get()));
  }
  ChangeFiles();
  const std::vector<RankRun> second = RunGang(options_);
  EXPECT_TRUE(second[0].frozen_kept);
  ExpectEqual(second, first);
  EXPECT_TRUE(dropped_.empty());
}

// It came without anything of the guardian's, as on another node.
TEST_P(FrozenThatStay, AreReadForOneThatLacksThem) {
  const std::vector<RankRun> first = RunGang(options_);
  shelves_.front() = RetainedWeights();
  const std::vector<RankRun> second = RunGang(options_);
  EXPECT_FALSE(second[0].frozen_kept);
  ExpectEqual(second, first);
}

INSTANTIATE_TEST_SUITE_P(Ways, FrozenThatStay, ::testing::ValuesIn(Ways()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace muster::parity
