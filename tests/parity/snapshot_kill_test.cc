// Training that is killed at any moment and goes on from its segments: the newest step or the one
// before is whole, and the end is that of an undisturbed run, bit for bit.
//
// The parent runs nothing of Torch: a forked child trains, its ranks as threads, in segments that
// the parent holds as a guardian does.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <string>
#include <tuple>

#include "common/base/testing/temp_dir.h"
#include "tests/parity/snapshot_run.h"
#include "tests/support/eventually.h"
#include "trainer/state/snapshot/cut.h"

namespace muster::parity {
namespace {

constexpr int kMaxRanks = 4;
constexpr Step kSteps = 24;

// What the child says, in memory that outlives it.
struct Board {
  std::array<std::atomic<Step>, kMaxRanks> sealed;
  std::atomic<Step> resumed;
  std::atomic<int> operators;  // of the watched rank, in the step that is watched
  std::array<std::atomic<std::uint64_t>, kMaxRanks> result;  // of the arrays at the end; 0: none
};

std::uint64_t Digest(const Arrays& arrays) {
  std::uint64_t digest = 14695981039346656037ULL;  // FNV-1a
  for (const auto& array : arrays) {
    for (const std::byte byte : array) {
      digest = (digest ^ static_cast<std::uint64_t>(byte)) * 1099511628211ULL;
    }
  }
  return digest;
}

// Where a child ends itself: before the `at`-th operator of a rank in the step behind `behind`.
struct Death {
  int rank = 0;
  Step behind = -1;
  int at = -1;  // never; the operators are counted all the same
};

struct KillCase {
  std::string name;
  GangOptions gang;
  int ranks_per_node = 0;  // with copies to buddies, and whole nodes are lost; 0: without
};

void PrintTo(const KillCase& which, std::ostream* out) { *out << which.name; }

class Kill : public testing::TestWithParam<KillCase> {
 protected:
  Kill() {
    control_block_ = static_cast<Board*>(
        ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~Kill() override { ::munmap(control_block_, sizeof(Board)); }

  const GangOptions& gang() const { return GetParam().gang; }
  int world() const { return gang().world_size; }
  bool has_buddies() const { return GetParam().ranks_per_node > 0; }

  // A segment for the rank itself and, with buddies, one for what it keeps.
  HeldSegments NewSegments(int rank) const {
    HeldSegments segments;
    segments.push_back(MakeOwnSegment(gang(), rank));
    if (has_buddies()) {
      const int owner = (rank - GetParam().ranks_per_node + world()) % world();
      segments.push_back(MakeOwnSegment(gang(), owner));
    }
    return segments;
  }

  pid_t StartChild(std::vector<HeldSegments>* held, Step steps = kSteps, const Death& death = {}) {
    for (auto& each : control_block_->result) each = 0;
    control_block_->resumed = -1;
    control_block_->operators = 0;
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    SnapshotOptions options{.gang = gang(), .generation = ++generation_, .until = steps};
    options.gang.model_dir = directory_.path();
    if (has_buddies()) {
      options.buddy = {.wanted = BuddyCopies::kOn,
                       .ranks_per_node = GetParam().ranks_per_node,
                       .force_copy = true};
    }
    options.after_seal = [this](int rank, Step step, FsdpEngine&) {
      control_block_->sealed[rank] = step;
    };
    options.before_operator = [this, death](int rank, const AnyOperator&) {
      if (rank != death.rank || control_block_->sealed[rank] != death.behind) return;
      if (++control_block_->operators == death.at) ::kill(::getpid(), SIGKILL);
    };
    const std::vector<SnapshotRank> ranks = RunWithSnapshots(options, std::move(*held));
    control_block_->resumed = ranks[0].resumed;
    for (int rank = 0; rank < world(); ++rank) {
      if (ranks[rank].status.ok()) control_block_->result[rank] = Digest(ranks[rank].arrays);
    }
    ::_exit(0);
  }

  // What the gang finds after a kill.
  std::optional<Cut> CutOf(const std::vector<HeldSegments>& held) const {
    std::vector<std::vector<ShardClaim>> claims(held.size());
    for (std::size_t rank = 0; rank < held.size(); ++rank) {
      for (const auto& segment : held[rank]) {
        const std::vector<ShardClaim> some = ClaimsOf(*segment);
        claims[rank].insert(claims[rank].end(), some.begin(), some.end());
      }
    }
    return ChooseCut(claims);
  }

  Step HighestSealed() const {
    Step highest = 0;
    for (const auto& each : control_block_->sealed) highest = std::max(highest, each.load());
    return highest;
  }

  std::vector<std::uint64_t> Results() const {
    std::vector<std::uint64_t> results;
    for (int rank = 0; rank < world(); ++rank) results.push_back(control_block_->result[rank]);
    return results;
  }

  TempDirForTest directory_;  // of what adapters leave frozen; a child that dies leaves its own
  Board* control_block_ = nullptr;
  Generation generation_ = 0;
  std::minstd_rand random_{11};
};

TEST_P(Kill, LeavesTheStepOrTheOneBeforeAndTheSameEnd) {
  std::vector<HeldSegments> held;
  for (int rank = 0; rank < world(); ++rank) held.push_back(NewSegments(rank));
  ASSERT_EQ(::waitpid(StartChild(&held), nullptr, 0) > 0, true);
  const std::vector<std::uint64_t> undisturbed = Results();
  ASSERT_EQ(std::count(undisturbed.begin(), undisturbed.end(), 0U), 0);

  held.clear();
  for (int rank = 0; rank < world(); ++rank) held.push_back(NewSegments(rank));
  for (auto& each : control_block_->sealed) each = 0;
  Step reached = 0;
  int kills = 0;
  while (reached < kSteps) {
    const pid_t pid = StartChild(&held);
    ++generation_;
    const Step target = std::min<Step>(kSteps, reached + 1 + static_cast<Step>(random_() % 4));
    ASSERT_TRUE(Eventually([&] { return HighestSealed() >= target; }, std::chrono::seconds(60)));
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
    ++kills;
    reached = HighestSealed();
    if (has_buddies() && kills % 2 == 0) {
      const int node = static_cast<int>(random_() % 2);
      for (int i = 0; i < GetParam().ranks_per_node; ++i) {
        const int rank = node * GetParam().ranks_per_node + i;
        held[rank] = NewSegments(rank);
      }
    }
    const std::optional<Cut> cut = CutOf(held);
    ASSERT_TRUE(cut.has_value()) << "after step " << reached;
    EXPECT_GE(cut->state.step, reached - 1) << "kill " << kills;
    EXPECT_LE(cut->state.step, reached + 1);
  }
  EXPECT_GE(kills, 4);
  ASSERT_GT(::waitpid(StartChild(&held), nullptr, 0), 0);
  EXPECT_GE(control_block_->resumed, kSteps - 1);
  EXPECT_EQ(Results(), undisturbed);
}

// A router's decisions, and rows on their way to experts, are nowhere but in the step that dies.
class KillInAStep : public Kill {
 protected:
  std::vector<HeldSegments> NewSegmentsOfAll() {
    std::vector<HeldSegments> held;
    for (int rank = 0; rank < world(); ++rank) held.push_back(NewSegments(rank));
    for (auto& each : control_block_->sealed) each = -1;
    return held;
  }
  void RunToTheEnd(std::vector<HeldSegments>* held, const Death& death = {}) {
    ASSERT_GT(::waitpid(StartChild(held, kLast, death), nullptr, 0), 0);
  }

  static constexpr Step kBehind = 1, kLast = 3;
};

TEST_P(KillInAStep, BeforeAnyOperatorEndsAsIfUndisturbed) {
  std::vector<HeldSegments> held = NewSegmentsOfAll();
  RunToTheEnd(&held, {.rank = world() - 1, .behind = kBehind});
  const std::vector<std::uint64_t> undisturbed = Results();
  const int operators = control_block_->operators;
  ASSERT_GT(operators, 40);
  constexpr int kKills = 14;
  for (int kill = 0; kill < kKills; ++kill) {
    const int at = 1 + kill * (operators - 1) / (kKills - 1);
    held = NewSegmentsOfAll();
    RunToTheEnd(&held, {.rank = world() - 1, .behind = kBehind, .at = at});
    ASSERT_EQ(control_block_->operators, at) << "the child did not die";
    ++generation_;
    RunToTheEnd(&held);
    EXPECT_GE(control_block_->resumed, kBehind) << at;
    EXPECT_EQ(Results(), undisturbed) << "killed before operator " << at << " of " << operators;
  }
}

std::vector<KillCase> MixtureKillCases() {
  std::vector<KillCase> cases;
  for (const auto& [name, family, ways] : {std::tuple("mixture", Family::kQwen3Moe, 1),
                                           std::tuple("experts_divided", Family::kQwen3Moe, 2),
                                           std::tuple("gpt_oss", Family::kGptOss, 2)}) {
    KillCase which{name, {.world_size = 4}};
    which.gang.model = {.experts = 4, .family = family};
    which.gang.fsdp = {.expert_parallel = ways,
                       .mixed_precision = MixedPrecision::kBf16,
                       .activation_checkpointing = ActivationCheckpointing::kFull};
    cases.push_back(which);
  }
  KillCase adapters{"adapters_of_divided_experts", {.world_size = 2}};
  adapters.gang.model = {
      .experts = 4,
      .family = Family::kQwen3Moe,
      .lora =
          LoraSpec{.r = 3, .target_modules = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}},
      .quantization = QuantizationSpec()};
  adapters.gang.fsdp = {.expert_parallel = 2, .mixed_precision = MixedPrecision::kBf16};
  cases.push_back(adapters);
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Mixtures, KillInAStep, testing::ValuesIn(MixtureKillCases()),
                         [](const auto& info) { return info.param.name; });

std::vector<KillCase> KillCases() {
  using enum ShardingStrategy;
  const auto gang = [](ShardingStrategy strategy, int world) {
    return GangOptions{.world_size = world,
                       .fsdp = {.strategy = strategy, .mixed_precision = MixedPrecision::kBf16},
                       .ranks_per_node = world > 1 ? world / 2 : 1};
  };
  std::vector<KillCase> cases = {
      {"one_rank", gang(kNoShard, 1)},          {"full_shard", gang(kFullShard, 3)},
      {"shard_grad_op", gang(kShardGradOp, 2)}, {"no_shard", gang(kNoShard, 2)},
      {"hybrid_shard", gang(kHybridShard, 4)},  {"hybrid_shard_zero2", gang(kHybridShardZero2, 4)},
      {"node_lost", gang(kFullShard, 2), 1},    {"node_of_two_lost", gang(kFullShard, 4), 2}};
  KillCase device{"device", gang(kFullShard, 2)};
  device.gang.apart_from_host = true;
  cases.push_back(device);
  device.name = "device_offload";
  device.gang.fsdp.cpu_offload = true;
  cases.push_back(device);
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Ways, Kill, testing::ValuesIn(KillCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace muster::parity
