#include "worker/allocation/shared_dir.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster::worker {
namespace {

Member MemberOf(int index) {
  return {index, "n" + std::to_string(index), "10.0.0.1:" + std::to_string(100 + index)};
}

Member WithoutWorker(Member member) {
  member.has_worker = false;
  return member;
}

class SharedDirTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(shared_.Make().ok()); }
  void Spoil(const std::string& file, const std::string& text) {
    std::ofstream(shared_.dir() + "/" + file, std::ios::trunc) << text;
  }

  static SharedOwner OwnerOf(int run, const std::string& step) { return {"lab-7", run, step, 1}; }
  SharedDir Of(int run, const std::string& step) const {
    return SharedDir(shared_.dir(), OwnerOf(run, step));
  }

  TempDirForTest temp_;
  SharedDir shared_{temp_ / "slurm-7", OwnerOf(1, "s1")};
};

TEST_F(SharedDirTest, OnlyItsUserMayLookIntoIt) {
  const auto mode = std::filesystem::status(shared_.dir()).permissions();
  EXPECT_EQ(mode & std::filesystem::perms::all, std::filesystem::perms::owner_all);
}

TEST_F(SharedDirTest, MembersOfThisRunAreFound) {
  ASSERT_TRUE(shared_.WriteMember(MemberOf(0)).ok());
  ASSERT_TRUE(shared_.WriteMember(WithoutWorker(MemberOf(11))).ok());
  ASSERT_TRUE(Of(0, "s0").WriteMember(MemberOf(2)).ok());
  ASSERT_TRUE(Of(11, "s11").WriteMember(MemberOf(3)).ok());
  ASSERT_TRUE(Of(1, "another srun").WriteMember(MemberOf(4)).ok());
  auto members = shared_.ReadMembers();
  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) { return a.index < b.index; });
  EXPECT_EQ(members, (std::vector<Member>{MemberOf(0), WithoutWorker(MemberOf(11))}));
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
  const Leadership leadership{7, WithoutWorker(MemberOf(2)), "10.0.0.3:5", "10.0.0.3:6"};
  ASSERT_TRUE(shared_.WriteLeadership({leadership, 41}).ok());
  EXPECT_EQ(shared_.ReadLeadership()->leadership, leadership);
  EXPECT_EQ(shared_.ReadLeadership()->heartbeat, 41u);
  EXPECT_FALSE(Of(2, "s2").ReadLeadership()) << "the next run has none yet";
  EXPECT_FALSE(Of(1, "another srun").ReadLeadership());
  for (const char* text : {"", "[7]", "{\"run\": 1}", "{\"run\": 1, \"epoch\": 3}",
                           "{\"run\": 1, \"epoch\": -3, \"index\": 0}"}) {
    Spoil("leader.json", text);
    if (const auto read = shared_.ReadLeadership())
      ADD_FAILURE() << text << " was read as epoch " << read->leadership.epoch;
  }
}

TEST_F(SharedDirTest, AnOutcomeIsReadAsItWasWrittenAndByNoOtherStep) {
  EXPECT_FALSE(shared_.ReadOutcome());
  const Ending again{75, EndAction::kRequeue, "a \"reason\"\n", {"n1", "n2"}};
  const Ending done{0, EndAction::kLeave, "done", {}};
  for (const Ending& ending : {again, done}) {
    for (const bool closed : {false, true}) {
      ASSERT_TRUE(shared_.WriteOutcome({ending, closed}).ok());
      ASSERT_TRUE(shared_.ReadOutcome());
      EXPECT_EQ(shared_.ReadOutcome()->ending, ending);
      EXPECT_EQ(shared_.ReadOutcome()->closed, closed);
    }
  }
  EXPECT_FALSE(Of(2, "s2").ReadOutcome());
  EXPECT_FALSE(Of(1, "another srun").ReadOutcome());
}

TEST_F(SharedDirTest, AnOutcomeIsRequeuedOnlyIfSlurmHasAcceptedIt) {
  const Ending again{75, EndAction::kRequeue, "time", {}};
  const auto action = [&](const Outcome& outcome) {
    EXPECT_TRUE(shared_.WriteOutcome(outcome).ok());
    const auto text = ReadFile(shared_.dir() + "/outcome.json");
    const std::size_t at = text->find("\"action\":\"") + 10;
    return text->substr(at, text->find('"', at) - at);
  };
  EXPECT_EQ(action({.ending = again}), "requeue");
  EXPECT_EQ(action({.ending = again, .closed = true, .left_to_script = true}), "requeue");
  EXPECT_EQ(action({.ending = again, .closed = true, .requeued = true}), "requeued");
  EXPECT_EQ(action({.ending = again, .closed = true}), "left");
  EXPECT_EQ(action({.ending = {0, EndAction::kLeave, "", {}}, .closed = true}), "done");
}

TEST_F(SharedDirTest, ARunKnowsHowFarTheOnesBeforeItCame) {
  ASSERT_TRUE(shared_.Claim().ok());
  EXPECT_EQ(shared_.ReadProgress(), RunProgress{});
  const RunProgress progress{1, 55, 50, 2};
  ASSERT_TRUE(shared_.WriteProgress(progress).ok());
  EXPECT_EQ(shared_.ReadProgress(), RunProgress{}) << "its own is of no run before it";
  SharedDir next = Of(2, "s2");
  ASSERT_TRUE(next.Claim().ok());
  EXPECT_EQ(next.ReadProgress(), progress);
  EXPECT_EQ(shared_.WriteProgress(progress).code(), StatusCode::kFailedPrecondition);
  for (const char* text : {"", "[]", "{\"life\": 1, \"run\": 1}",
                           "{\"life\": 1, \"run\": 1, \"step\": \"x\", \"checkpoint\": 0}",
                           "{\"life\":1,\"run\":1,\"step\":1,\"checkpoint\":0,\"in_vain\":-4}"}) {
    Spoil("progress.json", text);
    EXPECT_EQ(next.ReadProgress(), RunProgress{}) << text;
  }
}

TEST_F(SharedDirTest, AnotherLifeHasComeNowhereYet) {
  ASSERT_TRUE(shared_.Claim().ok());
  ASSERT_TRUE(shared_.WriteProgress({0, 55, 50, 2}).ok());
  SharedDir second = Of(1, "s2");
  ASSERT_TRUE(second.Claim().ok());
  EXPECT_EQ(second.ReadProgress(), RunProgress{});
}

// A second srun of one allocation, with the records of the first still there.
TEST_F(SharedDirTest, ASecondStepHasAJournalAndKeysOfItsOwn) {
  ASSERT_TRUE(shared_.Claim().ok());
  ASSERT_TRUE(shared_.WriteOutcome({Ending{0, EndAction::kLeave, "done", {}}, true}).ok());
  SharedDir second = Of(1, "s2");
  ASSERT_TRUE(second.Claim().ok());
  EXPECT_NE(second.Journal(), shared_.Journal());
  EXPECT_NE(second.Security(), shared_.Security());
  EXPECT_TRUE(shared_.IsSuperseded());
  EXPECT_FALSE(second.IsSuperseded());
}

TEST_F(SharedDirTest, AnOlderRunSeesThatItIsOver) {
  ASSERT_TRUE(shared_.Claim().ok());
  EXPECT_FALSE(shared_.IsSuperseded());
  SharedDir later = Of(2, "s2");
  ASSERT_TRUE(later.Claim().ok());
  EXPECT_EQ(later.Journal(), shared_.Journal()) << "it goes on";
  EXPECT_TRUE(shared_.IsSuperseded());
}

// One that resumes in the middle of its work, or that Slurm signalled only after the next run
// began.
TEST_F(SharedDirTest, AnOlderRunOverwritesNothingOfALaterOne) {
  ASSERT_TRUE(shared_.Claim().ok());
  SharedDir later = Of(2, "s2");
  ASSERT_TRUE(later.Claim().ok());
  const Leadership leadership{7, MemberOf(2), "10.0.0.3:5", "10.0.0.3:6"};
  const Ending done{0, EndAction::kLeave, "done", {}};
  ASSERT_TRUE(later.WriteLeadership({leadership, 41}).ok());
  ASSERT_TRUE(later.WriteOutcome({done, false}).ok());
  EXPECT_EQ(shared_.WriteLeadership({leadership, 42}).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(shared_.WriteOutcome({done, true}).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(later.ReadLeadership()->heartbeat, 41u);
  EXPECT_FALSE(later.ReadOutcome()->closed);
}

TEST_F(SharedDirTest, KeysThatEarlierRunsLeftAreRemoved) {
  namespace fs = std::filesystem;
  ASSERT_TRUE(shared_.Claim().ok());
  fs::create_directories(shared_.Security());
  fs::create_directories(shared_.dir() + "/security-0");
  shared_.RemoveOldKeys();
  EXPECT_TRUE(fs::exists(shared_.Security()));
  EXPECT_FALSE(fs::exists(shared_.dir() + "/security-0"));
}

}  // namespace
}  // namespace muster::worker
