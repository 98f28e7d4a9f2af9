// Scenarios of faults that users order, to rehearse them on their own cluster.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::seconds;

// The job has two nodes; n1 allows faults.
struct Rehearsing : ControlHarness {
  explicit Rehearsing(ControllerOptions options = Allowing()) : ControlHarness(std::move(options)) {
    Join("n1", {.allows_faults = true});
    Join("n2");
    id = Submit(TrainYaml());
    RunTo(id, 12);
    Forget();
  }
  static ControllerOptions Allowing() {
    ControllerOptions options;
    options.allow_faults = true;
    return options;
  }
  StatusCode Ask(InjectFaultRequested request) { return Inject(std::move(request)).status.code(); }
  JobId id;
};

TEST(FaultTest, IsForwardedRecordedAndAnsweredWhenItIsDone) {
  Rehearsing h;
  const std::size_t replies = h.last().replies.size();
  EXPECT_EQ(replies, 0u);
  (void)h.Inject({.job = h.id.value, .rank = 0, .kind = "slow", .argument = "0.3"});
  EXPECT_TRUE(h.last().replies.empty()) << "not before it is done";
  const InjectFault fault = h.Take<InjectFault>("n1").at(0);
  EXPECT_EQ(fault.generation, 1);
  EXPECT_EQ(fault.kind, "slow");
  EXPECT_EQ(fault.argument, "0.3");
  EXPECT_TRUE(h.HasEvent(h.id, "fault_injected", "slow=0.3 ordered for rank 0 on n1"));
  h.Deliver("n1", FaultDone{fault.request_id, ""});
  ASSERT_EQ(h.last().replies.size(), 1u);
  EXPECT_EQ(std::get<FaultAccepted>(h.last().replies[0].body).node.value, "n1");
  h.Deliver("n1", FaultDone{fault.request_id, ""});
  EXPECT_TRUE(h.last().replies.empty());
}

TEST(FaultTest, IsRefusedWhereItIsNotAllowedOrMeansNothing) {
  Rehearsing h;
  EXPECT_EQ(h.Ask({.job = h.id.value, .rank = 1, .kind = "kill"}), StatusCode::kFailedPrecondition)
      << "its worker does not allow it";
  EXPECT_EQ(h.Ask({.job = h.id.value, .rank = 0, .kind = "explode"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(h.Ask({.job = h.id.value, .rank = 7, .kind = "kill"}), StatusCode::kNotFound);
  EXPECT_EQ(h.Ask({.job = "nobody", .rank = 0, .kind = "kill"}), StatusCode::kNotFound);
  EXPECT_EQ(h.Ask({.node = NodeName{"n9"}, .kind = "kill-node"}), StatusCode::kNotFound);
  EXPECT_EQ(h.Ask({.node = NodeName{"n2"}, .kind = "link-down"}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(h.Ask({.node = NodeName{"n9"}, .kind = "link-down"}), StatusCode::kNotFound);
  EXPECT_EQ(h.CountEvents(h.id, "fault_injected"), 0);
  EXPECT_EQ(h.CountEvents(JobId{}, "fault_injected"), 0);
}

TEST(FaultTest, ACoordinatorThatWasNotStartedForItRefusesEveryKind) {
  Rehearsing h{ControllerOptions()};
  EXPECT_EQ(h.Ask({.job = h.id.value, .rank = 0, .kind = "kill"}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(h.Ask({.node = NodeName{"n1"}, .kind = "link-down"}), StatusCode::kFailedPrecondition);
}

TEST(FaultTest, ANodeThatDiesOfItHasObeyedAndASilentOneIsReported) {
  Rehearsing h;
  (void)h.Inject({.node = NodeName{"n1"}, .kind = "kill-node"});
  h.Leave("n1");
  ASSERT_EQ(h.last().replies.size(), 1u);
  EXPECT_TRUE(h.last().replies[0].status.ok());
  h.Join("n1", {.allows_faults = true});
  (void)h.Inject({.node = NodeName{"n1"}, .kind = "stop-worker"});
  h.silent = {"n1", "n2"};
  h.Advance(seconds(11));
  EXPECT_EQ(h.LastReply().status.code(), StatusCode::kUnavailable);
}

TEST(FaultTest, OnANodeIsRecordedForTheClusterAndTheJobsItAffects) {
  Rehearsing h;
  const JobId waiting = h.Submit(TrainYaml("waiting"));
  (void)h.Inject({.node = NodeName{"n1"}, .kind = "kill-node"});
  EXPECT_TRUE(h.HasEvent(JobId{}, "fault_injected", "kill-node ordered for node n1"));
  EXPECT_TRUE(h.HasEvent(h.id, "fault_injected", "kill-node ordered for node n1"));
  EXPECT_EQ(h.CountEvents(waiting, "fault_injected"), 0) << "it has nothing there";
}

TEST(FaultTest, OnALinkIsRecordedAndLeftToTheCallerAlsoWhileTheNodeIsCutOff) {
  Rehearsing h;
  for (const std::string kind : {"link-down", "link-up"}) {
    const Reply reply = h.Inject({.node = NodeName{"n1"}, .kind = kind});
    ASSERT_TRUE(reply.status.ok()) << reply.status.ToString();
    EXPECT_EQ(std::get<FaultAccepted>(reply.body).node.value, "n1");
    EXPECT_FALSE(h.last().store.empty()) << "the reply waits until the events are stored";
    EXPECT_TRUE(h.HasEvent(JobId{}, "fault_injected", kind + " ordered for node n1"));
    EXPECT_TRUE(h.HasEvent(h.id, "fault_injected", kind + " ordered for node n1"));
    EXPECT_TRUE(h.Take<InjectFault>("n1").empty());
    if (kind == "link-down") h.Leave("n1");
  }
}

}  // namespace
}  // namespace muster
