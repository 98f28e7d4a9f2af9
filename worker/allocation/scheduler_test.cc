#include "worker/allocation/scheduler.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

class ScriptedScheduler : public Scheduler {
 public:
  Result<AllocationState> Ask() override { return state; }
  Status Requeue(const std::vector<std::string>& exclude) override {
    said.push_back("requeue");
    for (const std::string& node : exclude) said.push_back(node);
    return OkStatus();
  }
  Status Cancel() override {
    said.push_back("cancel");
    return OkStatus();
  }

  Result<AllocationState> state = AllocationState{.end_unix_seconds = {}, .batch_node = "n0"};
  std::vector<std::string> said;
};

using Words = std::vector<std::string>;

const Ending kDone{.exit_code = 0, .action = EndAction::kLeave, .reason = "done", .exclude = {}};
const Ending kAgain{
    .exit_code = 75, .action = EndAction::kRequeue, .reason = "time", .exclude = {"n2"}};

TEST(CloseAllocation, NothingIsLeftToDoForAFinishedJobWhoseBatchNodeLives) {
  ScriptedScheduler slurm;
  EXPECT_TRUE(CloseAllocation(slurm, kDone, {"n1"}).ok());
  EXPECT_EQ(slurm.said, Words{});
}

TEST(CloseAllocation, AnAllocationWithoutItsBatchNodeIsCancelled) {
  ScriptedScheduler slurm;
  EXPECT_TRUE(CloseAllocation(slurm, kDone, {"n0", "n1"}).ok());
  EXPECT_EQ(slurm.said, Words{"cancel"});
}

TEST(CloseAllocation, WorkThatIsLeftIsRequeuedWithoutTheBadNodes) {
  ScriptedScheduler slurm;
  EXPECT_TRUE(CloseAllocation(slurm, kAgain, {"n0"}).ok());
  EXPECT_EQ(slurm.said, (Words{"requeue", "n2"}));
}

TEST(CloseAllocation, AJobThatMayNotBeRequeuedIsAnErrorAndLeavesNoOrphan) {
  ScriptedScheduler slurm;
  slurm.state.value().may_requeue = false;
  EXPECT_EQ(CloseAllocation(slurm, kAgain, {}).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(slurm.said, Words{});
  EXPECT_EQ(CloseAllocation(slurm, kAgain, {"n0"}).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(slurm.said, Words{"cancel"});
}

// A requeue would bring back what the user has cancelled.
TEST(CloseAllocation, WhatTheSchedulerEndsAlreadyIsLeftAlone) {
  ScriptedScheduler slurm;
  slurm.state.value().ending = true;
  EXPECT_TRUE(CloseAllocation(slurm, kAgain, {"n0"}).ok());
  EXPECT_EQ(slurm.said, Words{});
}

TEST(CloseAllocation, ASchedulerThatDoesNotAnswerIsAnError) {
  ScriptedScheduler slurm;
  slurm.state = Unavailable("no slurmctld");
  EXPECT_EQ(CloseAllocation(slurm, kAgain, {"n0"}).code(), StatusCode::kUnavailable);
  EXPECT_EQ(slurm.said, Words{});
}

}  // namespace
}  // namespace muster::worker
