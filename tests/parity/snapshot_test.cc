// The sharded engine with its state in segments: equal bits, seals in time, and what a generation
// finds of the one before.

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/parity/snapshot_run.h"
#include "trainer/ops/adamw.h"
#include "trainer/state/snapshot/cut.h"

namespace muster::parity {
namespace {

constexpr int kSteps = 5;

struct Case {
  std::string name;
  GangOptions gang;
  std::int64_t every = 1;
};

void PrintTo(const Case& which, std::ostream* out) { *out << which.name; }

GangOptions GangOf(ShardingStrategy strategy, int world, MixedPrecision precision) {
  return {.world_size = world,
          .steps = kSteps,
          .fsdp = {.strategy = strategy, .mixed_precision = precision},
          .ranks_per_node = world > 1 ? world / 2 : 1};
}

std::vector<Case> Cases() {
  using enum ShardingStrategy;
  using enum MixedPrecision;
  std::vector<Case> cases = {{"one_rank", GangOf(kNoShard, 1, kBf16)},
                             {"full_shard", GangOf(kFullShard, 2, kBf16)},
                             {"full_shard_fp32", GangOf(kFullShard, 3, kFp32)},
                             {"shard_grad_op", GangOf(kShardGradOp, 2, kFp32)},
                             {"no_shard", GangOf(kNoShard, 2, kFp32)},
                             {"hybrid_shard", GangOf(kHybridShard, 4, kBf16)},
                             {"hybrid_shard_zero2", GangOf(kHybridShardZero2, 4, kFp32)}};
  for (const Case& on_host : std::vector<Case>(cases.begin() + 1, cases.begin() + 4)) {
    Case sockets = on_host;
    sockets.name += "_sockets";
    sockets.gang.shares_memory = false;
    cases.push_back(sockets);
    Case device = on_host;
    device.name += "_device";
    device.gang.apart_from_host = true;
    cases.push_back(device);
    Case offload = device;
    offload.name += "_offload";
    offload.gang.fsdp.cpu_offload = true;
    cases.push_back(offload);
    Case seldom = on_host;
    seldom.name += "_every_2";
    seldom.every = 2;
    cases.push_back(seldom);
    Case seldom_offload = offload;
    seldom_offload.name += "_every_2";
    seldom_offload.every = 2;
    cases.push_back(seldom_offload);
  }
  for (const bool shares : {true, false}) {
    Case experts = {shares ? "experts" : "experts_sockets", GangOf(kFullShard, 4, kBf16)};
    experts.gang.model = {.experts = 4, .family = Family::kQwen3Moe};
    experts.gang.fsdp.expert_parallel = 2;
    experts.gang.shares_memory = shares;
    cases.push_back(experts);
  }
  Case low = {"bf16_state", GangOf(kFullShard, 2, kBf16)};
  low.gang.optimizer.master_weights = StateType::kBf16;
  low.gang.optimizer.moments = StateType::kBf16;
  cases.push_back(low);
  return cases;
}

class Snapshots : public testing::TestWithParam<Case> {
 protected:
  SnapshotOptions Options() const {
    return {.gang = GetParam().gang, .until = kSteps, .every = GetParam().every};
  }
};

void ExpectOk(const std::vector<SnapshotRank>& ranks) {
  for (const SnapshotRank& rank : ranks) ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
}

std::vector<HeldSegments> TakeHeld(std::vector<SnapshotRank>& ranks) {
  std::vector<HeldSegments> held;
  for (SnapshotRank& rank : ranks) held.push_back(std::move(rank.held));
  return held;
}

TEST_P(Snapshots, ChangeNoBit) {
  const std::vector<RankRun> without = RunGang(GetParam().gang);
  const std::vector<SnapshotRank> with = RunWithSnapshots(Options(), {});
  ExpectOk(with);
  for (std::size_t rank = 0; rank < with.size(); ++rank) {
    EXPECT_EQ(with[rank].arrays, without[rank].arrays) << "rank " << rank;
  }
}

// When a rank has got past a step's last collective, everybody's snapshot of the step before is
// there and is that state. Looked at by all ranks after every step.
TEST_P(Snapshots, AreSealedBeforeTheNextStepsLastCollective) {
  SnapshotOptions options = Options();
  const int world = options.gang.world_size;
  std::vector<HeldSegments> held(world);
  std::vector<const Segment*> all;
  for (int rank = 0; rank < world; ++rank) {
    held[rank].push_back(MakeOwnSegment(options.gang, rank));
    all.push_back(held[rank].back().get());
  }
  std::mutex mutex;
  std::vector<Step> finished(world);
  options.after_seal = [&](int rank, Step step, FsdpEngine& engine) {
    EXPECT_GE(engine.SealedStep(), (step - 1) / options.every * options.every);
    const std::scoped_lock lock(mutex);
    finished[rank] = step;
    for (const Segment* segment : all) {
      EXPECT_GE(segment->NewestStep(), (step - 1) / options.every * options.every);
    }
    std::vector<std::vector<ShardClaim>> claims;
    for (const Segment* segment : all) claims.push_back(ClaimsOf(*segment));
    const std::optional<Cut> cut = ChooseCut(claims);
    ASSERT_TRUE(cut.has_value());
    EXPECT_GE(cut->state.step, (step - 1) / options.every * options.every);
  };
  ExpectOk(RunWithSnapshots(options, std::move(held)));
}

// Training is stopped between any two steps and goes on in the same segments.
TEST_P(Snapshots, GoOnWithTheSameBits) {
  SnapshotOptions options = Options();
  const std::vector<SnapshotRank> undisturbed = RunWithSnapshots(options, {});
  ExpectOk(undisturbed);
  std::vector<HeldSegments> held;
  Step sealed = -1;
  for (Step until = 1; until <= kSteps; ++until) {
    options.generation = until;
    options.until = until;
    std::vector<SnapshotRank> ranks = RunWithSnapshots(options, std::move(held));
    ExpectOk(ranks);
    for (const SnapshotRank& rank : ranks) {
      EXPECT_EQ(rank.resumed, sealed);
      EXPECT_EQ(rank.in_place, until > 1);
    }
    sealed = ranks[0].sealed;
    if (until == kSteps) {
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        EXPECT_EQ(ranks[rank].arrays, undisturbed[rank].arrays) << "rank " << rank;
        EXPECT_EQ(ranks[rank].cursor, undisturbed[rank].cursor);
      }
    }
    held = TakeHeld(ranks);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Snapshots, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Snapshots, ASlotHasNoLabelWhileItIsWrittenTo) {
  SnapshotOptions options{.gang = GangOf(ShardingStrategy::kFullShard, 2, MixedPrecision::kBf16),
                          .until = 4};
  std::vector<HeldSegments> held(2);
  std::vector<const Segment*> own;
  for (int rank = 0; rank < 2; ++rank) {
    held[rank].push_back(MakeOwnSegment(options.gang, rank));
    own.push_back(held[rank].back().get());
  }
  std::atomic<int> updates = 0;
  options.before_operator = [&](int rank, const AnyOperator& any) {
    const auto* adamw = any.As<op::AdamW>();
    if (adamw == nullptr) return;
    const OptimizerArrays& arrays = adamw->arrays;
    const Segment& segment = *own[rank];
    const auto lies_in = [&](const void* array, int slot) {
      const auto* byte = static_cast<const std::byte*>(array);
      return byte >= segment.slot(slot) && byte < segment.slot(slot) + segment.slot_bytes();
    };
    for (const void* written : {arrays.weight, arrays.exp_avg, arrays.exp_avg_sq}) {
      const int slot = lies_in(written, 1) ? 1 : 0;
      EXPECT_TRUE(lies_in(written, slot));
      EXPECT_TRUE(segment.Labels(slot).empty());
    }
    EXPECT_FALSE(lies_in(arrays.low_precision, 0) || lies_in(arrays.low_precision, 1));
    EXPECT_TRUE(lies_in(arrays.old_weight, segment.NewestSlot()));
    ++updates;
  };
  ExpectOk(RunWithSnapshots(options, std::move(held)));
  EXPECT_EQ(updates, 2 * 4 * 5);  // ranks, steps, units
}

TEST(Snapshots, OfStepsThatWereLeftOutAreLabelsOfTheSameSlot) {
  SnapshotOptions options{.gang = GangOf(ShardingStrategy::kFullShard, 2, MixedPrecision::kFp32),
                          .until = 6};
  options.leaves_out = [](Step step) { return step == 3 || step == 4; };
  const std::vector<SnapshotRank> undisturbed = RunWithSnapshots(options, {});
  ExpectOk(undisturbed);
  for (const Step stop : {3, 4, 5}) {
    options.generation = 1;
    options.until = stop;
    std::vector<SnapshotRank> ranks = RunWithSnapshots(options, {});
    ExpectOk(ranks);
    const Segment& own = *ranks[0].held[0];
    if (stop == 4) {
      EXPECT_EQ(own.Labels(own.NewestSlot()), (std::vector<Step>{3, 4}));
    }
    // The other rank had not come so far.
    ranks[1].held[0]->Continue(
        1, {.lineage = 1, .step = stop - 1, .shard_count = 2, .layout = own.spec().layout});
    options.generation = 2;
    options.until = 6;
    ranks = RunWithSnapshots(options, TakeHeld(ranks));
    ExpectOk(ranks);
    EXPECT_EQ(ranks[0].resumed, stop - 1);
    EXPECT_EQ(ranks[0].arrays, undisturbed[0].arrays);
    EXPECT_EQ(ranks[1].arrays, undisturbed[1].arrays);
  }
}

TEST(Snapshots, AnOverflowIsAStepToo) {
  for (const bool device : {false, true}) {
    SnapshotOptions options{.gang = GangOf(ShardingStrategy::kFullShard, 2, MixedPrecision::kFp16),
                            .until = 4};
    options.gang.loss_scale = 1e30;  // of which several steps overflow
    options.gang.apart_from_host = device;
    const std::vector<SnapshotRank> undisturbed = RunWithSnapshots(options, {});
    ExpectOk(undisturbed);
    EXPECT_LT(undisturbed[0].cursor.optimizer_steps, 4);
    std::vector<HeldSegments> held;
    for (Step until = 1; until <= 4; ++until) {
      options.generation = until;
      options.until = until;
      std::vector<SnapshotRank> ranks = RunWithSnapshots(options, std::move(held));
      ExpectOk(ranks);
      if (until == 4) {
        EXPECT_EQ(ranks[1].arrays, undisturbed[1].arrays);
        EXPECT_EQ(ranks[1].cursor, undisturbed[1].cursor);
      }
      held = TakeHeld(ranks);
    }
  }
}

// By way of a gang of another size and strategy, and back.
TEST(Snapshots, AreCutAnewForAnyGang) {
  using enum ShardingStrategy;
  SnapshotOptions options{.gang = GangOf(kFullShard, 3, MixedPrecision::kBf16), .until = 3};
  std::vector<SnapshotRank> first = RunWithSnapshots(options, {});
  ExpectOk(first);
  std::vector<HeldSegments> held = TakeHeld(first);
  // Lost at different moments; the first had sealed one step more.
  const StateId second_step{
      .lineage = 1, .step = 2, .shard_count = 3, .layout = held[1][0]->spec().layout};
  held[1][0]->Continue(1, second_step);
  options.until = 2;
  for (const auto& [strategy, world] : std::vector<std::pair<ShardingStrategy, int>>{
           {kFullShard, 2}, {kHybridShard, 4}, {kNoShard, 2}, {kShardGradOp, 5}, {kNoShard, 1}}) {
    options.gang = GangOf(strategy, world, MixedPrecision::kBf16);
    options.generation += 1;
    std::vector<HeldSegments> regrouped(world);
    for (std::size_t rank = 0; rank < held.size(); ++rank) {
      for (auto& each : held[rank]) regrouped[rank % world].push_back(std::move(each));
    }
    std::vector<SnapshotRank> ranks = RunWithSnapshots(options, std::move(regrouped));
    ExpectOk(ranks);
    EXPECT_EQ(ranks[0].resumed, 2);
    held.clear();
    // The own segment alone: what was there before is let go.
    for (SnapshotRank& rank : ranks) {
      held.emplace_back();
      held.back().push_back(std::move(rank.held[0]));
    }
  }
  options.gang = GangOf(kFullShard, 3, MixedPrecision::kBf16);
  options.generation += 1;
  options.until = 3;
  std::vector<HeldSegments> regrouped(3);
  regrouped[2] = std::move(held[0]);
  const std::vector<SnapshotRank> last = RunWithSnapshots(options, std::move(regrouped));
  ExpectOk(last);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(last[rank].resumed, 2);
    EXPECT_EQ(last[rank].arrays, first[rank].arrays) << "rank " << rank;
    EXPECT_EQ(last[rank].cursor, first[rank].cursor);
  }
}

// A node is lost with all its segments: what it held is with its buddies.
TEST(Snapshots, OfALostNodeAreWithItsBuddies) {
  for (const bool copies : {false, true}) {
    for (const bool device : {false, true}) {
      SnapshotOptions options{
          .gang = GangOf(ShardingStrategy::kFullShard, 4, MixedPrecision::kBf16), .until = kSteps};
      options.gang.apart_from_host = device;
      options.buddy = {.wanted = BuddyCopies::kOn, .ranks_per_node = 2, .force_copy = copies};
      const std::vector<SnapshotRank> undisturbed = RunWithSnapshots(options, {});
      ExpectOk(undisturbed);
      options.until = 3;
      std::vector<SnapshotRank> ranks = RunWithSnapshots(options, {});
      ExpectOk(ranks);
      std::vector<HeldSegments> held = TakeHeld(ranks);
      held[0].clear();
      held[1].clear();
      options.generation = 2;
      options.until = kSteps;
      ranks = RunWithSnapshots(options, std::move(held));
      ExpectOk(ranks);
      for (int rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(ranks[rank].in_place, rank >= 2);
        EXPECT_GE(ranks[rank].resumed, 2);
        EXPECT_EQ(ranks[rank].arrays, undisturbed[rank].arrays) << "rank " << rank;
      }
    }
  }
}

}  // namespace
}  // namespace muster::parity
