#include "trainer/state/snapshot/restore.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>

#include "trainer/state/snapshot/testing/snapshot_testing.h"

namespace muster {
namespace {

using testing::Arrays;
using testing::AsGang;
using testing::CountWrong;
using testing::CursorOf;
using testing::MakeSegment;
using testing::SmallSpec;
using testing::TrainTo;

constexpr Step kStep = 12;

// The segments of a gang of `world` ranks that was lost at kStep; `replicas` of each.
struct LostGang {
  explicit LostGang(int world, Step ahead = 0) {
    for (int rank = 0; rank < world; ++rank) {
      segments.push_back(MakeSegment(rank, world));
      TrainTo(*segments.back(), kStep);
      // Some had sealed the next step already.
      if (rank < ahead) TrainTo(*segments.back(), kStep + 1);
    }
  }
  std::vector<const Segment*> Of(const std::vector<int>& shards) const {
    std::vector<const Segment*> some;
    for (const int shard : shards) some.push_back(segments[shard].get());
    return some;
  }
  std::vector<std::unique_ptr<Segment>> segments;
};

struct NewRank {
  Result<RestoreOutcome> outcome = Unavailable("not run");
  int wrong = -1;
};

// A gang of as many ranks as `holds` has entries, each of which can read these shards.
std::vector<NewRank> Restore(const LostGang& lost, const std::vector<std::vector<int>>& holds) {
  const int world = static_cast<int>(holds.size());
  std::vector<NewRank> ranks(holds.size());
  AsGang(world, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    const std::vector<const Segment*> segments = lost.Of(holds[rank]);
    auto cut = AgreeOnCut(communicator, segments);
    ASSERT_TRUE(cut.ok() && cut->has_value());
    EXPECT_EQ((**cut).state.step, kStep);
    const Arrays arrays(SmallSpec(rank, world));
    ranks[rank].outcome = RestoreCut(communicator, **cut, segments, arrays.arrays(), {});
    ranks[rank].wrong = CountWrong(arrays.arrays(), kStep);
  });
  return ranks;
}

struct Resize {
  int from = 1;
  int to = 1;
};
class Resharding : public ::testing::TestWithParam<Resize> {};

TEST_P(Resharding, EveryElementIsThereWhereverItLay) {
  const auto [from, to] = GetParam();
  const LostGang lost(from, from / 2);
  std::vector<std::vector<int>> holds(to);
  for (int shard = 0; shard < from; ++shard) holds[shard % to].push_back(shard);
  for (const NewRank& rank : Restore(lost, holds)) {
    ASSERT_TRUE(rank.outcome.ok()) << rank.outcome.status().ToString();
    EXPECT_EQ(rank.wrong, 0);
    EXPECT_EQ(rank.outcome->cursor, CursorOf(kStep));
  }
}

std::vector<Resize> Sizes() {
  std::vector<Resize> sizes;
  for (const int from : {1, 2, 3, 5}) {
    for (const int to : {1, 2, 3, 5}) sizes.push_back({from, to});
  }
  return sizes;
}
INSTANTIATE_TEST_SUITE_P(Sizes, Resharding, ::testing::ValuesIn(Sizes()), [](const auto& info) {
  return std::to_string(info.param.from) + "To" + std::to_string(info.param.to);
});

TEST(Restore, AReplacedRankGetsItsShardFromTheBuddyAndTheOthersNothing) {
  const LostGang lost(3);
  // Rank 1 is new, and rank 2 keeps the shard of the lost one.
  const auto ranks = Restore(lost, {{0}, {}, {2, 1}});
  for (const NewRank& rank : ranks) {
    ASSERT_TRUE(rank.outcome.ok()) << rank.outcome.status().ToString();
    EXPECT_EQ(rank.wrong, 0);
  }
  EXPECT_EQ(ranks[1].outcome->local_bytes, 0);
  // One shard was sent and no more.
  std::int64_t shard_bytes = 0;
  for (const ShardArray& array : SmallSpec(1, 3).arrays) {
    shard_bytes += static_cast<std::int64_t>(array.bytes());
  }
  EXPECT_EQ(ranks[0].outcome->sent_bytes, shard_bytes);
}

TEST(Restore, NothingIsSentWhereEverybodyHoldsWhatItNeeds) {
  const LostGang lost(2);
  for (const NewRank& rank : Restore(lost, {{0, 1}, {1}})) {
    ASSERT_TRUE(rank.outcome.ok());
    EXPECT_EQ(rank.outcome->sent_bytes, 0);
    EXPECT_EQ(rank.wrong, 0);
  }
}

TEST(Restore, InPlaceTouchesNoByte) {
  const LostGang lost(2, 1);
  AsGang(2, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    Segment& own = *lost.segments[rank];
    auto cut = AgreeOnCut(communicator, {&own});
    ASSERT_TRUE(cut.ok() && cut->has_value());
    ASSERT_TRUE(IsInPlace(own, SmallSpec(rank, 2), **cut));
    EXPECT_FALSE(IsInPlace(own, SmallSpec(1 - rank, 2), **cut));
    EXPECT_FALSE(IsInPlace(own, SmallSpec(0, 1), **cut));
    own.Continue(2, (**cut).state);
    const int slot = own.NewestSlot();
    const std::vector<std::byte> before(own.slot(slot), own.slot(slot) + own.slot_bytes());
    const auto outcome =
        RestoreCut(communicator, **cut, {&own}, own.Arrays(slot), {.in_place = true});
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    EXPECT_EQ(outcome->local_bytes + outcome->sent_bytes, 0);
    EXPECT_EQ(outcome->cursor, CursorOf(kStep));
    EXPECT_EQ(std::memcmp(before.data(), own.slot(slot), before.size()), 0);
    EXPECT_EQ(own.NewestStep(), kStep);
  });
}

TEST(Restore, ReachesArraysThatLieElsewhere) {
  const LostGang lost(2);
  AsGang(1, [&](Communicator& communicator) {
    const auto segments = lost.Of({0, 1});
    auto cut = AgreeOnCut(communicator, segments);
    ASSERT_TRUE(cut.ok() && cut->has_value());
    const Arrays arrays(SmallSpec(0, 1));
    std::int64_t written = 0;
    const auto write = [&](void* array, const void* host, std::size_t bytes) {
      written += static_cast<std::int64_t>(bytes);
      std::memcpy(array, host, bytes);
    };
    const auto outcome =
        RestoreCut(communicator, **cut, segments, arrays.arrays(), {.memory = {.write = write}});
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(written, outcome->local_bytes);
    EXPECT_EQ(CountWrong(arrays.arrays(), kStep), 0);
  });
}

// Restores with another rank 1 than the state was saved for; all ranks must fail.
std::vector<Status> RestoreInto(const LostGang& lost, const SegmentSpec& of_rank_1) {
  std::vector<Status> statuses(2);
  AsGang(2, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    const auto segments = lost.Of({rank});
    auto cut = AgreeOnCut(communicator, segments);
    ASSERT_TRUE(cut.ok() && cut->has_value());
    const Arrays arrays(rank == 1 ? of_rank_1 : SmallSpec(0, 2));
    statuses[rank] = RestoreCut(communicator, **cut, segments, arrays.arrays(), {}).status();
  });
  return statuses;
}

TEST(Restore, AFailureOnOneRankIsOneOnAll) {
  const LostGang lost(2);
  SegmentSpec other_shape = SmallSpec(1, 2);
  for (ShardArray& array : other_shape.arrays) {
    for (TensorInterval& interval : array.intervals) interval.shape.push_back(1);
  }
  SegmentSpec unknown = SmallSpec(1, 2);
  unknown.arrays[0].intervals[0].tensor = "not saved";
  SegmentSpec other_type = SmallSpec(1, 2);
  other_type.arrays[0].type = ElementType::kBFloat16;
  const std::map<std::string, SegmentSpec> misfits = {
      {"there and", other_shape}, {"does not hold", unknown}, {"bfloat16", other_type}};
  for (const auto& [says, spec] : misfits) {
    const std::vector<Status> statuses = RestoreInto(lost, spec);
    EXPECT_FALSE(statuses[0].ok());
    ASSERT_FALSE(statuses[1].ok());
    EXPECT_NE(statuses[1].message().find(says), std::string::npos) << statuses[1].ToString();
    EXPECT_NE(statuses[0].message().find("another rank"), std::string::npos);
  }
}

TEST(Restore, LabelsOfOneStepThatStandElsewhereInTheDataAreRefused) {
  const LostGang lost(2);
  Segment& second = *lost.segments[1];
  TrainCursor other = CursorOf(kStep);
  other.samples += 1;
  second.Seal(second.NewestSlot(), other);
  for (const Status& status : RestoreInto(lost, SmallSpec(1, 2))) EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace muster
