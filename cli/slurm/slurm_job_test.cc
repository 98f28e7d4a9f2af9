#include "cli/slurm/slurm_job.h"

#include <gtest/gtest.h>

#include "cli/base/exit_code.h"
#include "common/base/files.h"
#include "common/slurm/sbatch_script.h"
#include "common/slurm/testing/fake_slurm.h"

namespace muster {
namespace {

class SlurmJobTest : public testing::Test {
 protected:
  std::string CommentHere() const {
    return slurm::CommentOf("k1", {.submission = "", .state_prefix = dir_ / "slurm-"});
  }

  void WriteState(const std::string& name, const std::string& text) {
    ASSERT_TRUE(MakeDirectories(dir_ / "slurm-42").ok());
    ASSERT_TRUE(WriteFileAtomically(dir_ / ("slurm-42/" + name), text).ok());
  }

  SlurmJob Job(const std::string& state) const {
    return WithState({.id = 42, .state = state, .comment = CommentHere()}, "");
  }

  slurm::FakeSlurm slurm_;
  TempDirForTest dir_;
};

TEST_F(SlurmJobTest, IsMergedFromSlurmAndItsSupervisors) {
  slurm_.Install("squeue", "printf " + slurm::ListedLine("42", "first", "RUNNING", CommentHere()));
  WriteState(
      "leader.json",
      R"({"run":1,"epoch":3,"index":2,"node":"n3","address":"a","grpc":"10.0.0.3:7","x":1})");
  WriteState("outcome.json",
             R"({"run":0,"exit_code":75,"action":"requeued","reason":"end of time"})");
  const auto job = FindSlurmJob(slurm_.Commands(), "ann", "42", "");
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_EQ(job->slurm.name, "first");
  EXPECT_EQ(job->state_dir, dir_ / "slurm-42");
  ASSERT_TRUE(job->leader && job->outcome);
  EXPECT_EQ(job->leader->epoch, 3u);
  EXPECT_EQ(job->leader->node, "n3");
  EXPECT_EQ(job->outcome->action, "requeued");
  EXPECT_EQ(job->outcome->reason, "end of time");
}

TEST_F(SlurmJobTest, IsFoundByNameAmongMustersOwn) {
  slurm_.Install("squeue",
                 "printf " + slurm::ListedLine("41", "first", "COMPLETED", CommentHere()) +
                     "\nprintf " + slurm::ListedLine("42", "first", "PENDING", CommentHere()) +
                     "\nprintf " + slurm::ListedLine("43", "first", "RUNNING", "by hand"));
  EXPECT_EQ(FindSlurmJob(slurm_.Commands(), "ann", "first", "")->slurm.id, 42u);
  EXPECT_NE(slurm_.Calls().find("--users=ann --name=first"), std::string::npos);
  const auto all = ListSlurmJobs(slurm_.Commands(), "ann");
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(all->at(0).slurm.id, 41u);
}

TEST_F(SlurmJobTest, AnArrayIsOneOfItsTasks) {
  const auto line = [](const std::string& id, const std::string& shown) {
    std::string text = slurm::ListedLine(id, "a", "RUNNING", "(null)");
    const std::string twice = id + "\\037" + id;
    return "printf " + text.replace(text.find(twice), twice.size(), id + "\\037" + shown);
  };
  slurm_.Install("squeue", line("41", "40_0") + "\n" + line("40", "40_1"));
  const auto whole = FindSlurmJob(slurm_.Commands(), "ann", "40", "");
  EXPECT_EQ(whole.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(whole.status().message().find("40_0, 40_1"), std::string::npos);
  slurm_.Install("squeue", line("40", "40_1"));
  const auto task = FindSlurmJob(slurm_.Commands(), "ann", "40_1", "");
  ASSERT_TRUE(task.ok()) << task.status().ToString();
  EXPECT_EQ(task->slurm.ref().text(), "40_1") << "its id alone would name the array";
  EXPECT_NE(slurm_.Calls().find("--jobs=40_1"), std::string::npos);
}

TEST_F(SlurmJobTest, TheFirstOfSeveralComponentsCounts) {
  slurm_.Install("squeue", "printf " + slurm::ListedLine("50", "a", "RUNNING", "(null)") +
                               "\nprintf " + slurm::ListedLine("51", "a", "RUNNING", "(null)"));
  EXPECT_EQ(FindSlurmJob(slurm_.Commands(), "ann", "50", "")->slurm.id, 50u);
}

TEST_F(SlurmJobTest, ThatSlurmHasForgottenIsKnownByItsStateOnly) {
  slurm_.Install("squeue", "echo 'slurm_load_jobs error: Invalid job id specified'; exit 1");
  const auto unknown = FindSlurmJob(slurm_.Commands(), "ann", "42", "");
  EXPECT_EQ(unknown.status().code(), StatusCode::kNotFound);
  EXPECT_NE(unknown.status().message().find("--state DIR"), std::string::npos);
  WriteState("outcome.json", R"({"run":0,"exit_code":11,"action":"done","reason":"by ann"})");
  const auto known = FindSlurmJob(slurm_.Commands(), "ann", "42", dir_ / "slurm-42");
  ASSERT_TRUE(known.ok());
  EXPECT_EQ(EndOf(*known), kExitJobCancelled);
}

TEST_F(SlurmJobTest, ReadsNoHalfFiles) {
  WriteState("leader.json", "{\"run\":");
  WriteState("outcome.json", "[]");
  EXPECT_FALSE(Job("RUNNING").leader);
  EXPECT_FALSE(Job("RUNNING").outcome);
  WriteState("outcome.json", R"({"exit_code":"x","action":7})");
  EXPECT_EQ(Job("RUNNING").outcome->action, "");
}

TEST_F(SlurmJobTest, HasEndedOnlyWhenNothingRunsOfItAnyMore) {
  EXPECT_EQ(EndOf(Job("PENDING")), std::nullopt);
  EXPECT_EQ(EndOf(Job("RUNNING")), std::nullopt);
  EXPECT_EQ(EndOf(Job("COMPLETING")), std::nullopt);
  EXPECT_EQ(EndOf(Job("CANCELLED")), kExitJobCancelled);
  EXPECT_EQ(EndOf(Job("COMPLETED")), kExitJobFailed) << "no outcome says that it succeeded";
  EXPECT_EQ(EndOf(Job("NODE_FAIL")), kExitJobFailed);
  WriteState("outcome.json", R"({"run":0,"exit_code":0,"action":"done","reason":""})");
  EXPECT_EQ(EndOf(Job("COMPLETED")), kExitSuccess);
  EXPECT_EQ(EndOf(Job("COMPLETING")), kExitSuccess);
  // The outcome is of an earlier run.
  EXPECT_EQ(EndOf(Job("PENDING")), std::nullopt);
}

TEST(OutcomeTextTest, ReportsWhatBecameOfTheJob) {
  const auto text = [](int exit_code, const std::string& action, const std::string& state = "") {
    SlurmJob job;
    job.slurm.state = state;
    job.outcome = SlurmOutcome{.run = 0, .exit_code = exit_code, .action = action, .reason = "why"};
    return OutcomeText(job);
  };
  EXPECT_EQ(text(0, "done"), "succeeded: why");
  EXPECT_EQ(text(10, "done"), "failed: why");
  EXPECT_EQ(text(11, "done"), "cancelled: why");
  EXPECT_EQ(text(12, "done"), "suspended: why");
  EXPECT_EQ(text(69, "done"), "ended with 69: why") << "the job has not failed";
  EXPECT_EQ(text(75, "requeue"), "to be requeued: why");
  EXPECT_EQ(text(75, "requeued"), "requeued: why");
  EXPECT_EQ(text(75, "requeued", "PENDING"), "requeued: why");
  EXPECT_EQ(text(75, "left", "COMPLETING"), "left to Slurm: why");
  EXPECT_EQ(text(75, "requeued", "CANCELLED"), "Slurm reports CANCELLED: why");
  EXPECT_EQ(text(0, "done", "COMPLETED"), "succeeded: why");
  EXPECT_EQ(OutcomeText({}), "");
}

TEST_F(SlurmJobTest, ASuspendedJobEndsWithItsOwnCode) {
  WriteState("outcome.json", R"({"run":0,"exit_code":12,"action":"done","reason":"by ann"})");
  EXPECT_EQ(EndOf(Job("FAILED")), kExitJobSuspended) << "Slurm calls each exit but 0 a failure";
}

}  // namespace
}  // namespace muster
