// Lost peers, full disks, checkpoints that another generation began.
#include "trainer/state/checkpoint/checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <future>
#include <latch>
#include <thread>

#include "trainer/state/checkpoint/testing/checkpointer_testing.h"
#include "trainer/supervise/supervisor.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(CheckpointerTest, LostPeerFailsTheSaveNotTheProcess) {
  InProcessGroup group(kRanks);
  const auto first = group.Join(0);
  const auto second = group.Join(1);
  std::thread peer([&] { EXPECT_TRUE(second->Form({.rank = 1, .world_size = 2}, Soon()).ok()); });
  EXPECT_TRUE(first->Form({.rank = 0, .world_size = 2}, Soon()).ok());
  peer.join();
  group.Kill(1);
  const auto checkpointer = Local(0);
  const auto saved = checkpointer->Save(*first, CursorAt(5), State(5).arrays());
  EXPECT_EQ(saved.status().code(), StatusCode::kUnavailable) << saved.status().ToString();
  EXPECT_TRUE(checkpointer->Drain(Soon()).ok());
}

// Written whole, then damaged before it counts: the older ones are all there is.
TEST_F(CheckpointerTest, OlderOnesStayUntilTheNewerWasReadAgain) {
  SaveAll({50, 100}, kRanks, 1);
  EXPECT_EQ(Committed(), (std::vector<Step>{100}));
  generation_ = 2;
  EachRank(kRanks, [&](int rank, Communicator& communicator) {
    const auto checkpointer = Local(rank, kRanks, 1);
    if (rank == 0) {
      EXPECT_TRUE(communicator.Barrier().ok());  // after rank 1 has written
    }
    SaveOne(*checkpointer, CursorAt(150), StateOf(rank, 150).arrays());
    const Status drained = checkpointer->Drain(Soon());
    if (rank == 1) {
      EXPECT_TRUE(drained.ok());
      Damage(Shard(150, 1));
      EXPECT_TRUE(communicator.Barrier().ok());
    } else {
      EXPECT_EQ(drained.code(), StatusCode::kDataLoss) << drained.ToString();
      EXPECT_THAT(drained.message(), HasSubstr(Shard(150, 1)));
    }
  });
  EXPECT_EQ(Committed(), (std::vector<Step>{100}));
  EXPECT_TRUE(std::filesystem::exists(root() + "/step-00000100-g1/rank-00001.shard"));
}

TEST_F(CheckpointerTest, FailureIsReportedAndForgotten) {
  // The checkpoints' directory is a file.
  ASSERT_TRUE(WriteFileAtomically(root(), "in the way").ok());
  Gate gate;
  gate.Open();
  Checkpointer checkpointer(OptionsFor(0, 1), std::make_unique<Forward>(&gate));
  SaveOne(checkpointer, CursorAt(5), State(5).arrays());
  EXPECT_FALSE(checkpointer.Drain(Soon()).ok());
  ASSERT_EQ(gate.failures_.size(), 1u);
  EXPECT_THAT(gate.failures_[0].message(), HasSubstr("checkpoints"));
  std::filesystem::remove(root());
  SaveOne(checkpointer, CursorAt(6), State(6).arrays());
  EXPECT_TRUE(checkpointer.Drain(Soon()).ok());
}

TEST_F(CheckpointerTest, AStateThatIsGivenUpWhileItIsWrittenIsNoCheckpoint) {
  Gate gate;
  gate.Open();
  Checkpointer checkpointer(OptionsFor(0, 1), std::make_unique<Forward>(&gate));
  Alone alone;
  const State state(5);
  ShardImage memory = ImageOf({.arrays = state.arrays()});
  bool let_go = false;
  std::atomic<bool> intact = false;
  const auto seal = [&] {
    return SealedShard{.data = {memory.data(), [&](const std::byte*) { let_go = true; }},
                       .bytes = memory.bytes(),
                       .intact = [&] { return intact.load(); }};
  };
  ASSERT_EQ(*checkpointer.Save(*alone, CursorAt(5), state.arrays(), seal), SaveOutcome::kTaken);
  EXPECT_EQ(checkpointer.Drain(Soon()).code(), StatusCode::kCancelled);
  EXPECT_TRUE(let_go);
  ASSERT_EQ(gate.failures_.size(), 1u);
  intact = true;
  ASSERT_EQ(*checkpointer.Save(*alone, CursorAt(6), state.arrays(), seal), SaveOutcome::kTaken);
  EXPECT_TRUE(checkpointer.Drain(Soon()).ok());
  EXPECT_EQ(gate.generations_, std::vector<Generation>{1});
}

TEST_F(CheckpointerTest, AnExceptionFailsThatCheckpointAlone) {
  // JSON takes no such text, and says so by throwing.
  CheckpointerOptions options = OptionsFor(0, 1);
  options.job_id = "\xff";
  Gate gate;
  gate.Open();
  Checkpointer checkpointer(options, std::make_unique<Forward>(&gate));
  SaveOne(checkpointer, CursorAt(5), State(5).arrays());
  EXPECT_EQ(checkpointer.Drain(Soon()).code(), StatusCode::kInternal);
  EXPECT_EQ(gate.failures_.size(), 1u);
}

// An earlier generation's shard is finished, and reported as its own, while the rank is in the
// next.
TEST_F(CheckpointerTest, WhatAnEarlierGenerationBeganIsFinishedAndReportedAsItsOwn) {
  Gate gate;
  const auto saver = std::make_shared<ShardSaver>();
  {
    Checkpointer before(OptionsFor(0, 1), std::make_unique<Forward>(&gate), saver);
    SaveOne(before, CursorAt(5), State(5).arrays());
    gate.AwaitArrival();
  }
  generation_ = 2;
  Gate free;
  free.Open();
  Checkpointer after(OptionsFor(0, 1), std::make_unique<Forward>(&free), saver);
  Alone alone;
  EXPECT_EQ(*after.Save(*alone, CursorAt(6), State(6).arrays()), SaveOutcome::kSkipped);
  gate.Open();
  EXPECT_TRUE(after.Drain(Soon()).ok());
  SaveOne(after, CursorAt(7), State(7).arrays());
  EXPECT_TRUE(after.Drain(Soon()).ok());
  EXPECT_EQ(gate.generations_, std::vector<Generation>{1});
  EXPECT_EQ(free.generations_, std::vector<Generation>{2});
}

TEST_F(CheckpointerTest, ACalledOffGenerationWaitsForNoDisk) {
  Gate gate;
  const auto saver = std::make_shared<ShardSaver>();
  Checkpointer checkpointer(OptionsFor(0, 1), std::make_unique<Forward>(&gate), saver);
  SaveOne(checkpointer, CursorAt(5), State(5).arrays());
  gate.AwaitArrival();
  std::thread guardian([&] { saver->CallOff(generation_); });
  EXPECT_EQ(checkpointer.Drain(Soon()).code(), StatusCode::kCancelled);
  guardian.join();
  gate.Open();
  EXPECT_TRUE(saver->Drain(generation_ + 1, Soon()).ok()) << "the next one may wait";
}

TEST_F(CheckpointerTest, AWaitForAShardShowsThatItsFileGrowsAndEndsWhenItDoesNot) {
  Gate gate;
  Checkpointer checkpointer(OptionsFor(0, 1), std::make_unique<Forward>(&gate));
  SaveOne(checkpointer, CursorAt(5), State(5).arrays());
  gate.AwaitArrival();
  int moves = 0;
  const auto count = [&] { ++moves; };
  EXPECT_EQ(checkpointer.DrainWhileMoving(std::chrono::milliseconds(5), count).code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(moves, 1) << "all of it was written before";
  gate.Open();
  EXPECT_TRUE(checkpointer.DrainWhileMoving(std::chrono::seconds(10), count).ok());
}

// The coordinator would never commit it, and a full disk needs the room.
TEST_F(CheckpointerTest, ShardsOfACheckpointThatFailedOnAnotherRankAreRemoved) {
  ASSERT_TRUE(MakeDirectories(Shard(50, 1) + ".tmp").ok());
  EachRank(kRanks, [&](int rank, Communicator& communicator) {
    Gate free;
    free.Open();
    Checkpointer checkpointer(OptionsFor(rank), std::make_unique<Forward>(&free));
    ASSERT_TRUE(checkpointer.Save(communicator, CursorAt(50), StateOf(rank, 50).arrays()).ok());
    EXPECT_EQ(checkpointer.Drain(Soon()).ok(), rank == 0);
    EXPECT_EQ(checkpointer.failed(), rank == 1);
    EXPECT_TRUE(communicator.Barrier().ok());
    EXPECT_TRUE(rank == 1 || std::filesystem::exists(Shard(50, 0)));
    // The next save carries the news where no step has.
    EXPECT_EQ(*checkpointer.Save(communicator, CursorAt(60), StateOf(rank, 60).arrays()),
              SaveOutcome::kTaken);
    EXPECT_TRUE(checkpointer.Drain(Soon()).ok());
    EXPECT_FALSE(checkpointer.failed());
  });
  EXPECT_FALSE(std::filesystem::exists(Shard(50, 0)));
  EXPECT_TRUE(std::filesystem::exists(Shard(60, 0)));
}

TEST_F(CheckpointerTest, AShardThatIsStillBeingWrittenIsRemovedWhenItIsDone) {
  Gate gate;
  Checkpointer checkpointer(OptionsFor(0), std::make_unique<Forward>(&gate));
  SaveOne(checkpointer, CursorAt(5), State(5).arrays());
  gate.AwaitArrival();
  checkpointer.Discard();
  EXPECT_TRUE(std::filesystem::exists(Shard(5, 0)));
  gate.Open();
  EXPECT_TRUE(checkpointer.Drain(Soon()).ok());
  EXPECT_FALSE(std::filesystem::exists(Shard(5, 0)));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(Shard(5, 0)).parent_path()));
}

// The errno decides: a path may have the words of another.
TEST_F(CheckpointerTest, TroubleIsToldToTheGuardianByItsKind) {
  auto pair = PacketSocket::Pair();
  ASSERT_TRUE(pair.ok());
  Supervisor supervisor(pair->second.Release());
  const auto committer = MakeSupervisorCommitter(&supervisor);
  const auto kind_of = [&](const Status& status) {
    committer->Failed({.step = 5}, 0, status);
    return nlohmann::json::parse(pair->first.Receive(Soon())->data).at("kind");
  };
  EXPECT_EQ(kind_of(ErrnoStatus(ENOSPC, "write /x")), "disk_full");
  EXPECT_EQ(kind_of(ErrnoStatus(EDQUOT, "write /x").WithContext("shard")), "disk_full");
  EXPECT_EQ(kind_of(ErrnoStatus(EROFS, "create /x")), "read_only");
  EXPECT_EQ(kind_of(ErrnoStatus(EIO, "fsync /x")), "io_error");
  EXPECT_EQ(kind_of(NotFound("no /No space left on device")), "other");
}

// A device that is always full.
TEST_F(CheckpointerTest, AFullDiskIsToldToTheGuardianAsSuch) {
  ASSERT_TRUE(MakeDirectories(std::filesystem::path(Shard(50, 0)).parent_path()).ok());
  std::filesystem::create_symlink("/dev/full", Shard(50, 0) + ".tmp");
  auto pair = PacketSocket::Pair();
  ASSERT_TRUE(pair.ok());
  Supervisor supervisor(pair->second.Release());
  Checkpointer checkpointer(OptionsFor(0, 1), MakeSupervisorCommitter(&supervisor));
  SaveOne(checkpointer, CursorAt(50), State(1).arrays());
  EXPECT_FALSE(checkpointer.Drain(Soon()).ok());
  const auto failed = pair->first.Receive(Soon());
  ASSERT_TRUE(failed.ok());
  EXPECT_THAT(failed->data, HasSubstr("\"kind\":\"disk_full\""));
}

TEST_F(CheckpointerTest, GuardianHearsOfShardsAndFailures) {
  auto pair = PacketSocket::Pair();
  ASSERT_TRUE(pair.ok());
  Supervisor supervisor(pair->second.Release());
  Checkpointer checkpointer(OptionsFor(1), MakeSupervisorCommitter(&supervisor));
  SaveOne(checkpointer, CursorAt(50), State(1).arrays());
  ASSERT_TRUE(checkpointer.Drain(Soon()).ok());
  const auto written = pair->first.Receive(Soon());
  ASSERT_TRUE(written.ok());
  EXPECT_THAT(written->data, HasSubstr("\"type\":\"shard_written\""));
  EXPECT_THAT(written->data, HasSubstr("\"directory\":\"step-00000050-g1\""));
  EXPECT_THAT(written->data, HasSubstr("\"file\":\"rank-00001.shard\""));
  ASSERT_TRUE(MakeDirectories(Shard(51, 1) + ".tmp").ok());
  SaveOne(checkpointer, CursorAt(51), State(1).arrays());
  EXPECT_FALSE(checkpointer.Drain(Soon()).ok());
  const auto failed = pair->first.Receive(Soon());
  ASSERT_TRUE(failed.ok());
  EXPECT_THAT(failed->data, HasSubstr("\"type\":\"checkpoint_failed\""));
}

// An abort, which calls off first, waited for the copy of gigabytes.
TEST_F(CheckpointerTest, CallingOffWaitsForNoCopy) {
  std::latch copying(1);
  std::latch released(1);
  const ArrayMemory memory = {.read =
                                  [&](void* to, const void* from, std::size_t bytes) {
                                    if (!copying.try_wait()) copying.count_down();
                                    released.wait();
                                    std::memcpy(to, from, bytes);
                                  },
                              .write = {}};
  Gate gate;
  gate.Open();
  CheckpointerOptions options = OptionsFor(0, 1);
  options.memory = memory;
  const auto saver = std::make_shared<ShardSaver>();
  Checkpointer checkpointer(options, std::make_unique<Forward>(&gate), saver);
  std::thread trainer([&] { SaveOne(checkpointer, CursorAt(5), State(5).arrays()); });
  copying.wait();
  const auto called_off = std::async(std::launch::async, [&] { saver->CallOff(generation_); });
  EXPECT_EQ(called_off.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  released.count_down();
  trainer.join();
  EXPECT_TRUE(saver->Drain(generation_ + 1, Soon()).ok()) << "it was taken whole";
}

}  // namespace
}  // namespace muster::testing
