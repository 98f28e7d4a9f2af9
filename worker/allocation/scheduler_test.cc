#include "worker/allocation/scheduler.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

class ScriptedScheduler : public Scheduler {
 public:
  Result<AllocationState> Ask() override {
    said.push_back("ask");
    return state;
  }
  Result<std::optional<std::int64_t>> EndUnixSeconds() override {
    return std::optional<std::int64_t>();
  }
  Result<std::int64_t> KillWaitSeconds() override { return 30; }
  Result<bool> Requeue(const std::vector<std::string>& exclude) override {
    said.push_back("requeue");
    for (const std::string& node : exclude) said.push_back(node);
    return requeued;
  }
  Status Cancel() override {
    said.push_back("cancel");
    return OkStatus();
  }

  Result<AllocationState> state = AllocationState{.batch_node = "n0", .nodes = {"n0", "n1", "n2"}};
  Result<bool> requeued = true;
  std::vector<std::string> said;
};

using Words = std::vector<std::string>;

const Ending kDone{.exit_code = 0, .action = EndAction::kLeave, .reason = "done", .exclude = {}};
const Ending kAgain{
    .exit_code = 75, .action = EndAction::kRequeue, .reason = "time", .exclude = {"n2"}};

ClosingOrder OrderOf(const Ending& ending, Words missing = {}, Words silent = {}) {
  return {.ending = ending,
          .run = 1,
          .node = "n1",
          .below = {},
          .missing = std::move(missing),
          .silent = std::move(silent)};
}

TEST(DecideClosing, WhoActsAndHow) {
  const Words all = {"n0", "n1", "n2"};
  const AllocationState whole{.batch_node = "n0", .nodes = all, .run = 1};
  AllocationState orphan = whole, cut_off = whole, later = whole, ending = whole, fixed = whole,
                  fixed_orphan = whole, unknown = whole;
  orphan.nodes = {"n1", "n2"};
  cut_off.nodes = {"n0", "n2"};
  later.run = 2;
  ending.ending = true;
  fixed.may_requeue = false;
  fixed_orphan = orphan;
  fixed_orphan.may_requeue = false;
  unknown.nodes.clear();
  ClosingOrder stand_in = OrderOf(kAgain, {"n0", "n2"}, {"n0", "n2"});
  stand_in.stand_in = true;
  stand_in.below = {"n0"};
  const struct {
    const char* what;
    const AllocationState& state;
    ClosingOrder order;
    ClosingStep step;
  } rows[] = {
      {"done, all is there", whole, OrderOf(kDone), ClosingStep::kNothing},
      {"the batch node is lost", orphan, OrderOf(kDone, {"n0"}, {"n0"}), ClosingStep::kCancel},
      {"its machine is silent", whole, OrderOf(kDone, {"n0"}, {"n0"}), ClosingStep::kWait},
      {"its supervisor died", whole, OrderOf(kDone, {"n0"}), ClosingStep::kNothing},
      {"the nodes are not known", unknown, OrderOf(kDone, {"n0"}, {"n0"}), ClosingStep::kNothing},
      {"work is left", whole, OrderOf(kAgain), ClosingStep::kRequeue},
      {"work is left of an orphan", orphan, OrderOf(kAgain, {"n0"}, {"n0"}), ClosingStep::kRequeue},
      {"no requeue", fixed, OrderOf(kAgain), ClosingStep::kRefused},
      {"no requeue of an orphan", fixed_orphan, OrderOf(kAgain, {"n0"}), ClosingStep::kCancel},
      {"cancelled meanwhile", ending, OrderOf(kAgain), ClosingStep::kNothing},
      {"this node is given up", cut_off, OrderOf(kAgain), ClosingStep::kLeftOut},
      {"a later run", later, OrderOf(kAgain), ClosingStep::kLeftOut},
      {"a lower node may live", whole, stand_in, ClosingStep::kWait},
      {"the lower one is lost", orphan, stand_in, ClosingStep::kRequeue},
  };
  for (const auto& row : rows) EXPECT_EQ(DecideClosing(row.state, row.order), row.step) << row.what;
}

TEST(CloseAllocation, AFinishedJobWhoseNodesAreAllThereNeedsNoScheduler) {
  ScriptedScheduler slurm;
  slurm.state = Unavailable("no slurmctld");
  EXPECT_EQ(CloseAllocation(slurm, OrderOf(kDone)).closing, Closing::kDone);
  EXPECT_EQ(slurm.said, Words{});
}

TEST(CloseAllocation, AnAllocationWithoutItsBatchNodeIsCancelled) {
  ScriptedScheduler slurm;
  slurm.state.value().nodes = {"n1", "n2"};
  EXPECT_EQ(CloseAllocation(slurm, OrderOf(kDone, {"n0"})).closing, Closing::kDone);
  EXPECT_EQ(slurm.said, (Words{"ask", "cancel"}));
}

TEST(CloseAllocation, WorkThatIsLeftIsRequeuedWithoutTheBadNodes) {
  ScriptedScheduler slurm;
  const ClosingResult result = CloseAllocation(slurm, OrderOf(kAgain));
  EXPECT_EQ(result.closing, Closing::kDone);
  EXPECT_TRUE(result.requeued);
  EXPECT_EQ(slurm.said, (Words{"ask", "requeue", "n2"}));
}

TEST(CloseAllocation, WhatTheSchedulerEndsItselfWasNotRequeued) {
  ScriptedScheduler slurm;
  slurm.requeued = false;  // cancelled while it waited
  EXPECT_EQ(CloseAllocation(slurm, OrderOf(kAgain)).closing, Closing::kDone);
  EXPECT_FALSE(CloseAllocation(slurm, OrderOf(kAgain)).requeued);
  slurm.requeued = true;
  slurm.state.value().ending = true;
  const ClosingResult before = CloseAllocation(slurm, OrderOf(kAgain));
  EXPECT_EQ(before.closing, Closing::kDone);
  EXPECT_FALSE(before.requeued);
}

TEST(CloseAllocation, ACommandThatFailsIsRetried) {
  ScriptedScheduler slurm;
  slurm.requeued = Unavailable("slurmctld restarts");
  EXPECT_EQ(CloseAllocation(slurm, OrderOf(kAgain)).closing, Closing::kAgain);
  slurm.state = Unavailable("no slurmctld");
  EXPECT_EQ(CloseAllocation(slurm, OrderOf(kAgain)).closing, Closing::kAgain);
}

// As in most images of containers; the batch script is outside and has them.
TEST(CloseAllocation, CommandsThatAreNotThereAreNotAskedForAgain) {
  ScriptedScheduler slurm;
  slurm.requeued = Unimplemented("scontrol is not installed");
  EXPECT_EQ(CloseAllocation(slurm, OrderOf(kAgain)).closing, Closing::kDone);
  slurm.state = Unimplemented("scontrol is not installed");
  const ClosingResult result = CloseAllocation(slurm, OrderOf(kAgain));
  EXPECT_EQ(result.closing, Closing::kDone);
  EXPECT_EQ(result.why, "scontrol is not installed");
  EXPECT_TRUE(result.left_to_script);
  slurm.state = NotFound("Invalid job id");
  EXPECT_EQ(CloseAllocation(slurm, OrderOf(kAgain)).closing, Closing::kDone) << "it is forgotten";
}

TEST(CloseAllocation, AJobThatMayNotBeRequeuedReportsWhatToDo) {
  ScriptedScheduler slurm;
  slurm.state.value().may_requeue = false;
  const ClosingResult result = CloseAllocation(slurm, OrderOf(kAgain));
  EXPECT_EQ(result.closing, Closing::kDone);
  EXPECT_NE(result.why.find("sbatch --requeue"), std::string::npos);
  EXPECT_FALSE(result.requeued);
  EXPECT_EQ(slurm.said, Words{"ask"});
}

TEST(CloseAllocation, AnAllocationThatGoesOnWithoutThisNodeIsLeftAlone) {
  ScriptedScheduler slurm;
  slurm.state.value().nodes = {"n0", "n2"};
  EXPECT_EQ(CloseAllocation(slurm, OrderOf(kAgain)).closing, Closing::kLeftOut);
  EXPECT_EQ(slurm.said, Words{"ask"});
}

}  // namespace
}  // namespace muster::worker
