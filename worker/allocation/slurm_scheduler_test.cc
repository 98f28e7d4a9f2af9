#include "worker/allocation/slurm_scheduler.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "common/slurm/testing/fake_slurm.h"
#include "tests/support/saved_environment.h"

namespace muster::worker {
namespace {

class SlurmSchedulerTest : public testing::Test {
 protected:
  // scontrol's output for job 7, which is this one's run 1.
  std::unique_ptr<Scheduler> Of(const std::string& said) {
    slurm_.Install("scontrol", "case \"$*\" in *show*) echo \"JobId=7 JobName=j " + said +
                                   " NodeList=n0,n1 BatchHost=n0 Requeue=1\";; esac");
    return Of();
  }
  // With what is installed.
  std::unique_ptr<Scheduler> Of() {
    slurm::Allocation allocation;
    allocation.job_id = 7;
    allocation.restart_count = 1;
    allocation.end_unix_seconds = end_at_start_;
    ::setenv("PATH", slurm_.path().c_str(), 1);
    return MakeSlurmScheduler(allocation);
  }
  bool Said(const std::string& words) const {
    return slurm_.Calls().find(words) != std::string::npos;
  }

  SavedEnvironment environment_;
  slurm::FakeSlurm slurm_;
  std::optional<std::int64_t> end_at_start_;
};

TEST_F(SlurmSchedulerTest, TheJobsStateIsTheOneOfSlurm) {
  const auto state = Of("JobState=RUNNING Restarts=1")->Ask();
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  EXPECT_EQ(state->nodes, (std::vector<std::string>{"n0", "n1"}));
  EXPECT_EQ(state->batch_node, "n0");
  EXPECT_EQ(state->run, 1);
  EXPECT_TRUE(state->may_requeue);
  EXPECT_FALSE(state->ending);
  EXPECT_TRUE(Of("JobState=CANCELLED Restarts=1")->Ask()->ending);
}

TEST_F(SlurmSchedulerTest, WithoutSlurmsCommandsTheEndIsThatOfTheTasksEnvironment) {
  EXPECT_EQ(Of()->EndUnixSeconds().status().code(), StatusCode::kUnimplemented);
  end_at_start_ = 1790000000;
  EXPECT_EQ(*Of()->EndUnixSeconds(), 1790000000);
  // It may have been put off since.
  EXPECT_EQ(*Of("JobState=RUNNING Restarts=1 EndTime=2026-11-24T08:00:00")->EndUnixSeconds(),
            1795507200);
  EXPECT_EQ(*Of("JobState=RUNNING Restarts=1 EndTime=Unknown")->EndUnixSeconds(), std::nullopt);
  // A slurmctld that does not answer now proves nothing.
  slurm_.Install("scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1");
  EXPECT_FALSE(Of()->EndUnixSeconds().ok());
}

TEST_F(SlurmSchedulerTest, TheTimeFromSigtermToSigkillIsTheClustersOwn) {
  slurm_.Install("scontrol", "echo 'KillWait = 20 sec'");
  EXPECT_EQ(*Of()->KillWaitSeconds(), 20);
  slurm_.Install("scontrol", "echo 'SlurmdTimeout = 20 sec'");
  EXPECT_EQ(Of()->KillWaitSeconds().status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(SlurmSchedulerTest, ARequeueKeepsWhatWasExcludedBefore) {
  EXPECT_TRUE(Of("JobState=RUNNING Restarts=1 ExcNodeList=n9")->Requeue({"n1"}).value());
  EXPECT_TRUE(Said("scontrol requeue 7"));
  EXPECT_TRUE(Said("ExcNodeList=n[1,9]")) << slurm_.Calls();
}

// While this one waited until Slurm had the lost node down, another one has requeued the job, and
// it runs again.
TEST_F(SlurmSchedulerTest, ALaterRunIsNotRequeued) {
  EXPECT_FALSE(Of("JobState=RUNNING Restarts=2 OverSubscribe=NO")->Requeue({"n1"}).value());
  EXPECT_FALSE(Said("requeue")) << slurm_.Calls();
}

TEST_F(SlurmSchedulerTest, WhatWasCancelledMeanwhileIsNotRequeued) {
  EXPECT_FALSE(Of("JobState=CANCELLED Restarts=1")->Requeue({"n1"}).value());
  EXPECT_FALSE(Said("requeue")) << slurm_.Calls();
}

}  // namespace
}  // namespace muster::worker
