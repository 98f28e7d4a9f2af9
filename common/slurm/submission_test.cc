#include "common/slurm/submission.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "common/base/file_lock.h"
#include "common/base/files.h"
#include "common/base/unique_fd.h"
#include "common/slurm/testing/fake_slurm.h"

namespace muster::slurm {
namespace {

class SubmissionTest : public testing::Test {
 protected:
  SubmissionTest() {
    slurm_.Install("sbatch", "echo 42");
    slurm_.Install("squeue", "exit 0");
    plan_ = {
        .name = "first",
        .key = "k1",
        .user = "ann",
        .yaml = "name: first\n",
        .request = "{}\n",
        .script = "#!/bin/bash\n",
        .places = {.submission = dir_ / "out/slurm/first-k1", .state_prefix = dir_ / "out/slurm-"},
        .lock_timeout = std::chrono::milliseconds(20)};
  }

  Result<SubmittedJob> Submit() const { return SubmitOnce(slurm_.Commands(), plan_); }

  // What Slurm lists from now on.
  void List(const std::string& id, const std::string& key) {
    slurm_.Install("squeue",
                   "printf " + ListedLine(id, "first", "RUNNING", CommentOf(key, plan_.places)));
  }

  std::string Written(const std::string& name) const {
    const auto text = ReadFile(plan_.places.submission + "/" + name);
    return text.ok() ? *text : "";
  }

  bool Submitted() const { return slurm_.Calls().find("sbatch") != std::string::npos; }

  FakeSlurm slurm_;
  TempDirForTest dir_;
  SubmissionPlan plan_;
};

TEST_F(SubmissionTest, IsMadeOnceAndRemembered) {
  const auto first = Submit();
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(first->slurm_job_id, 42u);
  EXPECT_FALSE(first->existed);
  EXPECT_EQ(Written("job.yaml"), "name: first\n");
  EXPECT_EQ(Written("run.sbatch"), "#!/bin/bash\n");
  EXPECT_NE(slurm_.Calls().find("--job-name=first --comment=muster key=k1 at " +
                                plan_.places.state_prefix + " " + plan_.places.submission +
                                "/run.sbatch"),
            std::string::npos)
      << slurm_.Calls();
  slurm_.ForgetCalls();
  const auto second = Submit();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->slurm_job_id, 42u);
  EXPECT_TRUE(second->existed);
  EXPECT_EQ(slurm_.Calls(), "");
}

TEST_F(SubmissionTest, ForAnotherJobWithTheSameKeyIsAConflict) {
  ASSERT_TRUE(Submit().ok());
  plan_.yaml = "name: first\npriority: 1\n";
  EXPECT_EQ(Submit().status().code(), StatusCode::kAlreadyExists);
  plan_.yaml = "name: first\n";
  plan_.request = "{\"sbatch\":[\"-N4\"]}\n";
  EXPECT_EQ(Submit().status().code(), StatusCode::kAlreadyExists);
  // Another version of muster renders another script of the same job.
  plan_.request = "{}\n";
  plan_.script = "#!/bin/bash\n# newer\n";
  EXPECT_TRUE(Submit()->existed);
  EXPECT_EQ(Written("run.sbatch"), "#!/bin/bash\n");
}

TEST_F(SubmissionTest, ThatWasKilledBehindSbatchFindsItsJob) {
  ASSERT_TRUE(Submit().ok());
  ASSERT_EQ(::unlink((plan_.places.submission + "/submission.json").c_str()), 0);
  slurm_.ForgetCalls();
  List("43", "k1");
  const auto again = Submit();
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->slurm_job_id, 43u);
  EXPECT_TRUE(again->existed);
  EXPECT_FALSE(Submitted());
  EXPECT_NE(Written("submission.json").find("\"slurm_job_id\":43"), std::string::npos);
}

// Slurm forgets an ended job after MinJobAge.
TEST_F(SubmissionTest, WhoseJobSlurmHasForgottenIsKnownByWhatTheScriptWrote) {
  ASSERT_TRUE(MakeDirectories(plan_.places.submission).ok());
  ASSERT_TRUE(WriteFileAtomically(plan_.places.submission + "/started", "44\n").ok());
  EXPECT_EQ(Submit()->slurm_job_id, 44u);
  EXPECT_FALSE(Submitted());
}

TEST_F(SubmissionTest, IsNotMistakenForAnotherKeysJob) {
  List("43", "k2");
  EXPECT_EQ(Submit()->slurm_job_id, 42u);
}

TEST_F(SubmissionTest, IsNotMadeWhileSlurmDoesNotAnswer) {
  slurm_.Install("squeue", "echo 'Unable to contact slurm controller (connect failure)'; exit 1");
  EXPECT_EQ(Submit().status().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(Submitted());
  slurm_.Install("squeue", "exit 0");
  plan_.yaml = "name: first\npriority: 1\n";
  EXPECT_FALSE(Submit()->existed);
  EXPECT_EQ(Written("job.yaml"), plan_.yaml);
}

TEST_F(SubmissionTest, WhoseAnswerWasLostIsLookedUp) {
  const std::string lost = "echo 'sbatch: error: Socket timed out on send/recv operation'; exit 1";
  slurm_.Install("sbatch",
                 "cp " + (slurm_.path() + "/taken ") + (slurm_.path() + "/squeue") + "; " + lost);
  // Listed only from the moment on that sbatch was called.
  slurm_.Install("taken",
                 "printf " + ListedLine("45", "first", "PENDING", CommentOf("k1", plan_.places)));
  slurm_.Install("cp", "exec /bin/cp \"$@\"");
  const auto found = Submit();
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->slurm_job_id, 45u);
}

TEST_F(SubmissionTest, WhoseAnswerWasLostPrintsHowToRepeatIt) {
  slurm_.Install("sbatch", "echo 'sbatch: error: Socket timed out on send/recv operation'; exit 1");
  const auto lost = Submit();
  EXPECT_EQ(lost.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(lost.status().message().find("submit again with --key k1"), std::string::npos);
  slurm_.Install("sbatch", "echo 46");
  EXPECT_EQ(Submit()->slurm_job_id, 46u);
}

TEST_F(SubmissionTest, WaitsForAnotherOneWithTheSameKey) {
  ASSERT_TRUE(MakeDirectories(plan_.places.submission).ok());
  const UniqueFd other(
      ::open((plan_.places.submission + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(*LockFile(other.get()));
  EXPECT_EQ(Submit().status().code(), StatusCode::kAborted);
}

TEST_F(SubmissionTest, ThatSlurmRefusesCanBeRepeated) {
  slurm_.Install("sbatch", "echo 'sbatch: error: invalid partition specified: x'; exit 1");
  EXPECT_EQ(Submit().status().code(), StatusCode::kFailedPrecondition);
  // With other options: nothing has them yet.
  plan_.request = "{\"sbatch\":[\"--partition=y\"]}\n";
  slurm_.Install("sbatch", "echo 47");
  const auto taken = Submit();
  ASSERT_TRUE(taken.ok()) << taken.status().ToString();
  EXPECT_EQ(taken->slurm_job_id, 47u);
  EXPECT_EQ(Written("request.json"), plan_.request);
  plan_.request = "{}\n";
  EXPECT_EQ(Submit().status().code(), StatusCode::kAlreadyExists);
}

// Slurm may have taken it, and reads that job file then.
TEST_F(SubmissionTest, WithAnUnknownOutcomeStaysAsItIs) {
  const std::string down = "echo 'Unable to contact slurm controller (connect failure)'; exit 1";
  slurm_.Install("sbatch",
                 "echo " + ShellQuoted(down) + " > " + slurm_.path() + "/squeue; " + down);
  EXPECT_EQ(Submit().status().code(), StatusCode::kUnavailable);
  plan_.yaml = "name: first\npriority: 1\n";
  EXPECT_EQ(Submit().status().code(), StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace muster::slurm
