#include "worker/allocation/shared_dir.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/process/temp_dir_for_test.h"

namespace muster::worker {
namespace {

Member MemberOf(int index) {
  return {index, "n" + std::to_string(index), "10.0.0.1:" + std::to_string(100 + index)};
}

class SharedDirTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(shared_.Make().ok()); }
  void Spoil(const std::string& file, const std::string& text) {
    std::ofstream(shared_.dir() + "/" + file, std::ios::trunc) << text;
  }

  TempDirForTest temp_;
  const SharedDir shared_{temp_ / "slurm-7", 1};
};

TEST_F(SharedDirTest, OnlyItsUserMayLookIntoIt) {
  const auto mode = std::filesystem::status(shared_.dir()).permissions();
  EXPECT_EQ(mode & std::filesystem::perms::all, std::filesystem::perms::owner_all);
}

TEST_F(SharedDirTest, MembersOfThisRunAreFound) {
  ASSERT_TRUE(shared_.WriteMember(MemberOf(0)).ok());
  ASSERT_TRUE(shared_.WriteMember(MemberOf(11)).ok());
  ASSERT_TRUE(SharedDir(shared_.dir(), 0).WriteMember(MemberOf(2)).ok());
  ASSERT_TRUE(SharedDir(shared_.dir(), 11).WriteMember(MemberOf(3)).ok());
  auto members = shared_.ReadMembers();
  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) { return a.index < b.index; });
  EXPECT_EQ(members, (std::vector<Member>{MemberOf(0), MemberOf(11)}));
}

TEST_F(SharedDirTest, RecordsThatCannotBeReadAreLeftOut) {
  ASSERT_TRUE(shared_.WriteMember(MemberOf(0)).ok());
  for (const char* text : {"", "{", "[]", "{\"index\": \"x\"}", "{\"index\": 4}", "null"}) {
    Spoil("nodes/1-4.json", text);
    EXPECT_EQ(shared_.ReadMembers().size(), 1u) << text;
  }
}

TEST_F(SharedDirTest, TheLeaderOfThisRunIsFound) {
  EXPECT_FALSE(shared_.ReadLeadership());
  const Leadership leadership{7, MemberOf(2), "10.0.0.3:5", "10.0.0.3:6"};
  ASSERT_TRUE(shared_.WriteLeadership(leadership).ok());
  EXPECT_EQ(shared_.ReadLeadership(), leadership);
  EXPECT_FALSE(SharedDir(shared_.dir(), 2).ReadLeadership()) << "the next run has none yet";
  for (const char* text : {"", "[7]", "{\"run\": 1}", "{\"run\": 1, \"epoch\": 3}",
                           "{\"run\": 1, \"epoch\": -3, \"index\": 0}"}) {
    Spoil("leader.json", text);
    if (const auto read = shared_.ReadLeadership())
      ADD_FAILURE() << text << " was read as epoch " << read->epoch;
  }
}

TEST_F(SharedDirTest, AnEndingIsReadAsItWasWritten) {
  EXPECT_FALSE(shared_.ReadEnding());
  const Ending ending{75, EndAction::kRequeue, "a \"reason\"\n", {"n1", "n2"}};
  for (const char* action : {"requeue", "requeued"}) {
    ASSERT_TRUE(shared_.WriteEnding(ending, action).ok());
    EXPECT_EQ(shared_.ReadEnding(), ending);
  }
  EXPECT_FALSE(SharedDir(shared_.dir(), 2).ReadEnding());
  const Ending done{0, EndAction::kLeave, "done", {}};
  ASSERT_TRUE(shared_.WriteEnding(done, "done").ok());
  EXPECT_EQ(shared_.ReadEnding(), done);
}

}  // namespace
}  // namespace muster::worker
