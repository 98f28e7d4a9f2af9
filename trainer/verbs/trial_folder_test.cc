#include "trainer/verbs/trial_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>
#include <utility>

#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class TrialFolderTest : public ::testing::Test {
 protected:
  TrialFolder Take(int rank, int local_rank) {
    return std::move(TrialFolder::Take(output_, rank, local_rank).value());
  }
  static void Write(const fs::path& path) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "1";
  }

  const TempDirForTest dir_;
  const fs::path output_ = fs::path(dir_.path()) / "out";
};

TEST_F(TrialFolderTest, LosesWhatAKilledTrialLeft) {
  const fs::path manifest = output_ / ".smoke" / "first" / "checkpoints" / "manifest.json";
  for (const auto& [rank, local_rank] : {std::pair(0, 0), std::pair(4, 0)}) {
    Write(manifest);
    Write(output_ / ".smoke" / "losses-0");
    const TrialFolder folder = Take(rank, local_rank);
    EXPECT_FALSE(fs::exists(folder.path() / "first")) << rank;
    EXPECT_FALSE(fs::exists(folder.LossesOf(0))) << rank;
  }
  Write(manifest);
  Take(1, 1);
  EXPECT_TRUE(fs::exists(manifest)) << "which rank 0 of the node has removed, or will";
}

TEST_F(TrialFolderTest, IsLeftToRankZeroByNodesThatShareIt) {
  const TrialFolder zero = Take(0, 0), other = Take(2, 0), second = Take(3, 1);
  Write(zero.LossesOf(0));
  Write(other.LossesOf(2));
  other.Remove();
  second.Remove();
  EXPECT_TRUE(fs::exists(zero.LossesOf(0))) << "rank 0 has not reported yet";
  EXPECT_TRUE(fs::exists(zero.LossesOf(2)));
  zero.Remove();
  EXPECT_FALSE(fs::exists(output_));
  other.Remove();
  EXPECT_FALSE(fs::exists(output_)) << "there is nothing left to remove";
}

// Rank 0 took an output directory that another rank had just made for the user's, and left it.
TEST_F(TrialFolderTest, AnOutputThatRanksMakeAtOnceIsRemoved) {
  for (int trial = 0; trial < 300; ++trial) {
    std::thread other([&] { Take(1, 1); });
    const TrialFolder zero = Take(0, 0);
    other.join();
    zero.Remove();
    ASSERT_TRUE(fs::is_empty(dir_.path())) << "trial " << trial;
  }
}

TEST_F(TrialFolderTest, OfANodeWithADiskOfItsOwnIsRemovedThere) {
  const TrialFolder other = Take(2, 0);
  Write(other.LossesOf(2));
  other.Remove();
  EXPECT_FALSE(fs::exists(output_));
}

TEST_F(TrialFolderTest, LeavesWhatWasThereBefore) {
  fs::create_directories(output_);
  Take(0, 0).Remove();
  EXPECT_TRUE(fs::exists(output_)) << "though it is empty";
  Write(output_ / "metrics.jsonl");
  Write(output_ / ".smoke" / "losses-0");
  Take(0, 0).Remove();
  EXPECT_TRUE(fs::exists(output_ / "metrics.jsonl"));
  EXPECT_FALSE(fs::exists(output_ / ".smoke"));
}

TEST_F(TrialFolderTest, IsRefusedWhileAnotherTrialRunsInIt) {
  const TrialFolder first = Take(0, 0);
  Write(first.path() / "first" / "memory.json");
  const auto again = TrialFolder::Take(output_, 0, 0);
  EXPECT_THAT(again.status().message(), HasSubstr("another trial"));
  Take(2, 0);  // a node of that one, or of the other
  EXPECT_TRUE(fs::exists(first.path() / "first" / "memory.json"));
}

}  // namespace
}  // namespace muster
