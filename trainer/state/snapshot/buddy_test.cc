#include "trainer/state/snapshot/buddy.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>

#include "trainer/state/snapshot/cut.h"
#include "trainer/state/snapshot/testing/snapshot_testing.h"

namespace muster {
namespace {

using testing::AsGang;
using testing::CountWrong;
using testing::CursorOf;
using testing::MakeSegment;
using testing::TrainTo;

using Held = std::vector<std::unique_ptr<Segment>>;

BuddyOptions TwoNodes(bool force_copy, int world = 4) {
  return {.ranks_per_node = world / 2, .generation = 1, .name = "kept", .force_copy = force_copy};
}

ino_t FileOf(const Segment& segment) {
  struct stat info {};
  EXPECT_EQ(::fstat(segment.fd(), &info), 0);
  return info.st_ino;
}

TEST(WantsBuddy, WithTwoNodesAndNoReplica) {
  EXPECT_TRUE(WantsBuddy({.ranks_per_node = 2}, 4));
  EXPECT_FALSE(WantsBuddy({.ranks_per_node = 4}, 4));
  EXPECT_FALSE(WantsBuddy({.ranks_per_node = 2, .replicas = 2}, 4));
  EXPECT_TRUE(WantsBuddy({.wanted = BuddyCopies::kOn, .ranks_per_node = 2, .replicas = 2}, 4));
  EXPECT_FALSE(WantsBuddy({.wanted = BuddyCopies::kOn, .ranks_per_node = 4}, 4));
  EXPECT_FALSE(WantsBuddy({.wanted = BuddyCopies::kOff, .ranks_per_node = 2}, 4));
  EXPECT_FALSE(WantsBuddy({.ranks_per_node = 2}, 3));
}

// Each rank with a segment of its own and its buddy.
void WithBuddies(int world, const BuddyOptions& options,
                 const std::function<void(Communicator&, Segment& own, Buddy*, Held*)>& body) {
  std::vector<std::unique_ptr<Segment>> owns;
  for (int rank = 0; rank < world; ++rank) owns.push_back(MakeSegment(rank, world));
  AsGang(world, [&](Communicator& communicator) {
    Held held;
    Segment& own = *owns[communicator.rank()];
    auto buddy = Buddy::Create(communicator, own, options, &held);
    ASSERT_TRUE(buddy.ok()) << buddy.status().ToString();
    body(communicator, own, buddy->get(), &held);
    (void)communicator.Barrier();
  });
}

TEST(Buddy, OnOneHostItIsADescriptorOfTheSegmentItself) {
  std::vector<ino_t> files(4);
  std::vector<ino_t> kept(4);
  WithBuddies(4, TwoNodes(false), [&](Communicator& world, Segment& own, Buddy* buddy, Held*) {
    ASSERT_NE(buddy, nullptr);
    EXPECT_FALSE(buddy->copies());
    EXPECT_FALSE(buddy->kept().writable());
    files[world.rank()] = FileOf(own);
    kept[world.rank()] = FileOf(buddy->kept());
    TrainTo(own, 3);
    buddy->Start(own.NewestSlot(), CursorOf(3), true);
    ASSERT_TRUE(buddy->Finish().ok());
    ASSERT_TRUE(world.Barrier().ok());
    EXPECT_EQ(buddy->kept().NewestStep(), 3);
    EXPECT_EQ(CountWrong(buddy->kept().Arrays(buddy->kept().NewestSlot()), 3), 0);
  });
  // The same local rank on the node before.
  EXPECT_EQ(kept, (std::vector<ino_t>{files[2], files[3], files[0], files[1]}));
}

TEST(Buddy, TheRingGoesInTheOrderThatItIsGiven) {
  for (const bool force_copy : {false, true}) {
    BuddyOptions options = TwoNodes(force_copy, 2);  // of one rank each
    options.ring = {0, 2, 1, 3};
    std::vector<int> kept(4);
    WithBuddies(4, options, [&](Communicator& world, Segment&, Buddy* buddy, Held*) {
      ASSERT_NE(buddy, nullptr);
      kept[world.rank()] = buddy->kept().spec().shard_index;
    });
    EXPECT_EQ(kept, (std::vector<int>{3, 2, 0, 1}));
  }
}

TEST(Buddy, NobodyKeepsOneWhereRanksWereGivenDifferentRings) {
  AsGang(4, [](Communicator& communicator) {
    const auto own = MakeSegment(communicator.rank(), 4);
    Held held;
    BuddyOptions options = TwoNodes(false, 2);
    if (communicator.rank() == 3) options.ring = {0, 2, 1, 3};
    const auto buddy = Buddy::Create(communicator, *own, options, &held);
    ASSERT_TRUE(buddy.ok()) << buddy.status().ToString();
    EXPECT_EQ(*buddy, nullptr);
  });
}

TEST(Buddy, CopiesHoldWhatWasSealed) {
  WithBuddies(4, TwoNodes(true), [](Communicator& world, Segment& own, Buddy* buddy, Held*) {
    ASSERT_TRUE(buddy->copies());
    const Segment& kept = buddy->kept();
    EXPECT_EQ(kept.spec().shard_index, (world.rank() + 2) % 4);
    EXPECT_EQ(kept.spec().name, "kept");
    for (Step step = 1; step <= 5; ++step) {
      TrainTo(own, step);
      buddy->Start(own.NewestSlot(), CursorOf(step), true);
      // Until the copy is whole, the one before it is.
      EXPECT_EQ(kept.NewestStep(), step == 1 ? -1 : step - 1);
      ASSERT_TRUE(buddy->Finish().ok());
      EXPECT_EQ(kept.NewestStep(), step);
      EXPECT_EQ(CountWrong(kept.Arrays(kept.NewestSlot()), step), 0);
      if (step > 1) {
        EXPECT_EQ(CountWrong(kept.Arrays(1 - kept.NewestSlot()), step - 1), 0);
      }
      EXPECT_EQ(*kept.Cursor(kept.NewestSlot(), step), CursorOf(step));
    }
    // A step that changes nothing needs no copy.
    own.Seal(own.NewestSlot(), CursorOf(6));
    buddy->Start(own.NewestSlot(), CursorOf(6), false);
    ASSERT_TRUE(buddy->Finish().ok());
    EXPECT_EQ(kept.Labels(kept.NewestSlot()), (std::vector<Step>{5, 6}));
  });
}

TEST(Buddy, ALostPeerIsAnErrorAndTheCopyBeforeStays) {
  WithBuddies(2, TwoNodes(true, 2), [](Communicator& world, Segment& own, Buddy* buddy, Held*) {
    for (Step step = 1; step <= 2; ++step) {
      TrainTo(own, step);
      buddy->Start(own.NewestSlot(), CursorOf(step), true);
      if (step == 2) world.Abort(Cancelled("the test wants it"));
      const Status finished = buddy->Finish();
      if (step == 1) {
        ASSERT_TRUE(finished.ok());
      } else if (!finished.ok()) {  // the abort may have come too late
        EXPECT_EQ(buddy->kept().NewestStep(), 1);
      }
    }
    TrainTo(own, 3);
    buddy->Start(own.NewestSlot(), CursorOf(3), true);
    EXPECT_FALSE(buddy->Finish().ok());
    EXPECT_LE(buddy->kept().NewestStep(), 2);
    EXPECT_GE(buddy->kept().NewestStep(), 1);
  });
}

TEST(Buddy, ASegmentOfCopiesIsFilledOnInTheNextGeneration) {
  WithBuddies(2, TwoNodes(true, 2), [](Communicator& world, Segment& own, Buddy* buddy, Held*) {
    for (const Step step : {7, 8}) {
      TrainTo(own, step);
      buddy->Start(own.NewestSlot(), CursorOf(step), true);
      ASSERT_TRUE(buddy->Finish().ok());
    }
    const ino_t file = FileOf(buddy->kept());
    auto again = Segment::Map(UniqueFd(::dup(buddy->kept().fd())), Segment::Access::kReadWrite);
    ASSERT_TRUE(again.ok());
    Held held;
    held.push_back(MakeSegment(0, 5));
    held.push_back(*std::move(again));
    BuddyOptions next = TwoNodes(true, 2);
    next.generation = 2;
    next.from = StateId{.lineage = 1, .step = 7, .shard_count = 2, .layout = 102};
    own.Continue(2, *next.from);
    auto taken_on = Buddy::Create(world, own, next, &held);
    ASSERT_TRUE(taken_on.ok()) << taken_on.status().ToString();
    EXPECT_EQ(held.size(), 1U);
    EXPECT_EQ(FileOf((**taken_on).kept()), file);
    EXPECT_EQ((**taken_on).kept().NewestStep(), 7);
    EXPECT_EQ((**taken_on).kept().history().lineage, 2);
  });
}

TEST(Buddy, NobodyKeepsOneWhereNodesAreOfDifferentSizes) {
  AsGang(4, [](Communicator& communicator) {
    const auto own = MakeSegment(communicator.rank(), 4);
    Held held;
    BuddyOptions options = TwoNodes(false);
    if (communicator.rank() == 3) options.ranks_per_node = 1;
    const auto buddy = Buddy::Create(communicator, *own, options, &held);
    ASSERT_TRUE(buddy.ok()) << buddy.status().ToString();
    EXPECT_EQ(*buddy, nullptr);
  });
}

}  // namespace
}  // namespace muster
