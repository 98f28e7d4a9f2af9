#include "cli/slurm/follow_slurm_job.h"

#include <gtest/gtest.h>

#include "cli/base/exit_code.h"
#include "cli/commands/testing/commands_testing.h"
#include "common/slurm/sbatch_script.h"
#include "common/slurm/testing/fake_slurm.h"

// Without a coordinator to follow; tests/slurm/follow_test.py has one.
namespace muster {
namespace {

class SlurmAttachTest : public CommandsTest {
 protected:
  void Slurm(const std::string& state, const std::string& comment) {
    slurm_.Install("squeue", "printf " + slurm::ListedLine("42", "first", state, comment));
  }
  std::string CommentHere() const {
    return slurm::CommentOf("k1", {.submission = "", .state_prefix = dir_ + "/slurm-"});
  }
  void Outcome(const std::string& text) const {
    ASSERT_TRUE(MakeDirectories(dir_ + "/slurm-42").ok());
    ASSERT_TRUE(WriteFileAtomically(dir_ + "/slurm-42/outcome.json", text).ok());
  }
  CommandResult Attach(const std::string& state = "") {
    return AttachToSlurmJob(*context_, slurm_.Commands(), "first", state);
  }

  slurm::FakeSlurm slurm_;
};

TEST_F(SlurmAttachTest, PrintsHowAJobHasEnded) {
  Slurm("COMPLETED", CommentHere());
  Outcome(R"({"run":0,"exit_code":10,"action":"done","reason":"loss is not finite"})");
  const CommandResult result = Attach();
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(*result, kExitJobFailed);
  EXPECT_EQ(err_.str(), "the job ended: loss is not finite\n");
}

TEST_F(SlurmAttachTest, PrintsThatAJobWasCancelled) {
  Slurm("CANCELLED", CommentHere());
  EXPECT_EQ(*Attach(), kExitJobCancelled);
  EXPECT_EQ(err_.str(), "the job ended: Slurm reports CANCELLED\n");
}

// Cancelled while it was saved, and not requeued.
TEST_F(SlurmAttachTest, PrintsSlurmsWordFirstForOneSavedAndCancelled) {
  Slurm("CANCELLED", CommentHere());
  Outcome(R"({"run":0,"exit_code":75,"action":"left","reason":"saved"})");
  EXPECT_EQ(*Attach(), kExitJobCancelled);
  EXPECT_EQ(err_.str(), "the job ended: Slurm reports CANCELLED: saved\n");
}

// The job may well be there.
TEST_F(SlurmAttachTest, FailsWithoutSlurmsCommands) {
  for (const std::string& state : {std::string(), dir_ + "/slurm-42"}) {
    const CommandResult result = Attach(state);
    EXPECT_EQ(result.status().code(), StatusCode::kUnimplemented);
    EXPECT_NE(result.status().message().find("squeue is not in PATH"), std::string::npos)
        << result.status().message();
  }
}

TEST_F(SlurmAttachTest, NeedsTheDirectoryOfAJobThatMusterDidNotSubmit) {
  slurm_.Install("squeue", "printf " + slurm::ListedLine("42", "first", "RUNNING", "(null)"));
  const CommandResult result = AttachToSlurmJob(*context_, slurm_.Commands(), "42", "");
  EXPECT_EQ(result.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(result.status().message().find("/slurm-42"), std::string::npos);
}

}  // namespace
}  // namespace muster
