#include "worker/allocation/shared_owner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster::worker {
namespace {

SharedOwner OwnerOf(const std::string& allocation, int run, const std::string& step) {
  return {allocation, run, step, 1};
}

TEST(SharedOwner, WhoObeysWhat) {
  const SharedOwner self = OwnerOf("lab-7", 1, "a");
  const struct {
    std::optional<SharedOwner> found;
    Claim claim;
  } rows[] = {{std::nullopt, Claim::kContinue},
              {OwnerOf("lab-7", 1, "a"), Claim::kMine},
              {OwnerOf("lab-7", 0, "x"), Claim::kContinue},
              {OwnerOf("lab-7", 1, "b"), Claim::kNewLife},
              {OwnerOf("lab-7", 2, "c"), Claim::kLater},
              {OwnerOf("other-7", 0, "x"), Claim::kNewLife},
              {OwnerOf("other-7", 3, "x"), Claim::kNewLife}};
  for (const auto& row : rows)
    EXPECT_EQ(JudgeOwner(row.found, self), row.claim) << (row.found ? row.found->step : "none");
}

TEST(SharedOwner, RequeuedRunsGoOnAndAnotherStepBeginsAnew) {
  const TempDirForTest temp;
  EXPECT_EQ(ClaimDirectory(temp.path(), OwnerOf("lab-7", 0, "a")).value(), 1);
  EXPECT_EQ(ClaimDirectory(temp.path(), OwnerOf("lab-7", 0, "a")).value(), 1);
  EXPECT_EQ(ClaimDirectory(temp.path(), OwnerOf("lab-7", 1, "b")).value(), 1);
  ASSERT_TRUE(WriteFileAtomically(temp / "outcome.json", R"({"run":1,"step":"b"})").ok());
  EXPECT_EQ(ClaimDirectory(temp.path(), OwnerOf("lab-7", 1, "second srun")).value(), 2);
  ASSERT_TRUE(WriteFileAtomically(temp / "outcome.json", R"({"run":1,"step":"second srun"})").ok());
  EXPECT_EQ(ClaimDirectory(temp.path(), OwnerOf("other-7", 0, "a")).value(), 3);
  EXPECT_EQ(ReadOwner(temp.path())->allocation, "other-7");
}

TEST(SharedOwner, ATaskThatStartsLaterJoinsItsRunOrBeginsTheNextOne) {
  const TempDirForTest temp;
  const auto found = [&temp] { return FindRun(temp.path(), "chat-1", "uid"); };
  EXPECT_EQ(found().run, 0) << "nothing is there";
  ASSERT_TRUE(ClaimDirectory(temp.path(), OwnerOf("chat-1", 4, "uid")).ok());
  EXPECT_EQ(found().run, 4) << "it takes a lost task's place";
  EXPECT_EQ(FindRun(temp.path(), "chat-1", "other").run, 0);
  const auto end = [&temp](const char* text) {
    ASSERT_TRUE(WriteFileAtomically(temp / "outcome.json", text).ok());
  };
  end(R"({"run":3,"step":"uid","action":"done","exit_code":10})");
  EXPECT_EQ(found().run, 4) << "an earlier run's end";
  EXPECT_EQ(found().ended, std::nullopt);
  end(R"({"run":4,"step":"uid","action":"requeued","exit_code":75})");
  EXPECT_EQ(found().run, 5);
  EXPECT_EQ(found().ended, std::nullopt);
  end(R"({"run":4,"step":"uid","action":"done","exit_code":10})");
  EXPECT_EQ(found().ended, 10);
}

// slurmctld reused the id: the new job is at run 0, and the old one has no process left.
TEST(SharedOwner, AReusedJobIdBeginsAnewOnceTheOldJobIsSeenToBeDead) {
  const TempDirForTest temp;
  ASSERT_TRUE(ClaimDirectory(temp.path(), OwnerOf("lab-7", 4, "old")).ok());
  ASSERT_TRUE(WriteFileAtomically(temp / "outcome.json", R"({"run":4,"step":"old"})").ok());
  EXPECT_EQ(ClaimDirectory(temp.path(), OwnerOf("lab-7", 0, "new")).value(), 2);
}

TEST(SharedOwner, AnOlderRunThatWakesUpLeavesALivingOneAlone) {
  const TempDirForTest temp;
  ASSERT_TRUE(ClaimDirectory(temp.path(), OwnerOf("lab-7", 2, "new")).ok());
  std::atomic<bool> stop = false;
  std::thread leader([&] {
    for (int beat = 1; !stop; ++beat) {
      const std::string record = R"({"beat":)" + std::to_string(beat) + "}";
      EXPECT_TRUE(WriteFileAtomically(temp / "leader.json", record).ok());
    }
  });
  const auto old = ClaimDirectory(temp.path(), OwnerOf("lab-7", 1, "old"));
  const auto another = ClaimDirectory(temp.path(), OwnerOf("lab-7", 2, "second srun"));
  stop = true;
  leader.join();
  EXPECT_EQ(old.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(another.status().message().find("--state"), std::string::npos);
  EXPECT_EQ(ReadOwner(temp.path())->step, "new");
}

// A first coordinator may take longer to come up than a record of it may be old.
TEST(SharedOwner, AStepThatHasNoLeaderYetLives) {
  const TempDirForTest temp;
  ASSERT_TRUE(ClaimDirectory(temp.path(), OwnerOf("lab-7", 2, "new")).ok());
  ASSERT_TRUE(MakeDirectories(temp / "nodes").ok());
  std::atomic<bool> stop = false;
  std::thread supervisor([&] {
    while (!stop) EXPECT_TRUE(WriteFileAtomically(temp / "nodes/2-0.json", "{}").ok());
  });
  const auto another = ClaimDirectory(temp.path(), OwnerOf("lab-7", 2, "second srun"));
  stop = true;
  supervisor.join();
  EXPECT_EQ(another.status().code(), StatusCode::kFailedPrecondition);
}

TEST(SharedOwner, AllTasksOfAStepComeToTheSameLife) {
  const TempDirForTest temp;
  ASSERT_TRUE(ClaimDirectory(temp.path(), OwnerOf("lab-7", 0, "old")).ok());
  ASSERT_TRUE(WriteFileAtomically(temp / "outcome.json", R"({"run":0,"step":"old"})").ok());
  std::atomic<int> others = 0;
  std::vector<std::thread> tasks;
  for (int i = 0; i < 8; ++i)
    tasks.emplace_back([&] {
      const auto life = ClaimDirectory(temp.path(), OwnerOf("lab-7", 0, "new"));
      if (!life.ok() || *life != 2) ++others;
    });
  for (std::thread& task : tasks) task.join();
  EXPECT_EQ(others, 0);
}

}  // namespace
}  // namespace muster::worker
