#include "common/slurm/slurm_commands.h"

#include <gtest/gtest.h>

#include "common/slurm/testing/fake_slurm.h"

namespace muster::slurm {
namespace {

TEST(SlurmCommands, ListsWithItsOwnFormatTimeZoneAndUsers) {
  FakeSlurm slurm;
  slurm.Install("squeue",
                "test \"$TZ\" = UTC && test -z \"$SQUEUE_USERS\" || exit 9\n"
                "printf " +
                    ListedLine("7", "a", "RUNNING", "(null)"));
  const auto jobs = slurm.Commands().List({.id = 7, .user = "ann", .name = "a"});
  ASSERT_TRUE(jobs.ok()) << jobs.status().ToString();
  ASSERT_EQ(jobs->size(), 1u);
  EXPECT_EQ(jobs->at(0).id, 7u);
  EXPECT_NE(slurm.Calls().find("--noheader --states=all"), std::string::npos);
  EXPECT_NE(slurm.Calls().find("--jobs=7 --users=ann --name=a"), std::string::npos);
}

TEST(SlurmCommands, ReturnsWhatACommandPrinted) {
  FakeSlurm slurm;
  slurm.Install("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
  EXPECT_EQ(slurm.Commands().Show(7).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(slurm.Commands().Cancel(7).code(), StatusCode::kUnimplemented) << "no such command";
  EXPECT_NE(slurm.Commands().Cancel(7).message().find("Slurm's command scancel is not in PATH"),
            std::string::npos);
}

TEST(SlurmCommands, EndsACommandThatDoesNotAnswer) {
  FakeSlurm slurm;
  slurm.Install("scontrol", "exec /usr/bin/tail -f /dev/null");
  const Status status = slurm.Commands(std::chrono::milliseconds(200)).Requeue(7);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
}

TEST(SlurmCommands, SubmitsAndReadsTheId) {
  FakeSlurm slurm;
  slurm.Install("sbatch", "echo 'sbatch: warning: quota' >&2; echo '42;lab'");
  EXPECT_EQ(*slurm.Commands().Submit("/x/run.sbatch", {"--hold"}), 42u);
  EXPECT_EQ(slurm.Calls(), "sbatch --parsable --hold /x/run.sbatch\n");
}

TEST(SlurmCommands, ExcludesNodesOnceTheJobWaits) {
  FakeSlurm slurm;
  slurm.Install("scontrol",
                "case $1 in update) if test -e " + slurm.path() + "/waits; then exit 0; else : > " +
                    slurm.path() +
                    "/waits; echo 'Job is not pending execution' >&2; exit 1; fi;; esac");
  const Status status =
      slurm.Commands().RequeueWithout(7, {"n1", "n2", "n5"}, std::chrono::seconds(20));
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(slurm.Calls(),
            "scontrol requeue 7\n"
            "scontrol update JobId=7 ExcNodeList=n[1-2,5]\n"
            "scontrol update JobId=7 ExcNodeList=n[1-2,5]\n");
}

TEST(SlurmCommands, ReadsTheConfiguration) {
  FakeSlurm slurm;
  slurm.Install(
      "scontrol",
      "case $2 in config) echo 'KillWait = 30 sec';; *) echo 'PartitionName=a B=c';; esac");
  EXPECT_EQ(slurm.Commands().Config()->at("KillWait"), "30 sec");
  EXPECT_EQ(slurm.Commands().Partitions()->at("a").at("B"), "c");
}

}  // namespace
}  // namespace muster::slurm
