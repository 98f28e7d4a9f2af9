// What leaves the controller's memory, when, and what is still known of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ControllerOptions Short() {
  ControllerOptions options;
  options.retain = minutes(1);
  options.archive_retain = minutes(10);
  options.lost_node_retain = minutes(5);
  options.scrub_interval = Duration::zero();
  return options;
}

// A job that has succeeded, and whose nodes have released it.
struct FinishedJob : RunningJob {
  explicit FinishedJob(ControllerOptions options = Short(), const std::string& yaml = CommandYaml())
      : RunningJob(yaml, std::move(options)) {
    FinishAll(id);
    ReleaseAll(id);
  }
  void ReleaseAll(const JobId& job) {
    const std::vector<NodeName> nodes = Job(job).record->pending_release;
    for (const NodeName& node : nodes) Deliver(node.value, Released{job});
  }
  // Another job, submitted with the key "key", that is over as well.
  JobId FinishKeyed() {
    const JobId keyed = Submit(CommandYaml("keyed"), "key");
    StartAll(keyed);
    FinishAll(keyed);
    ReleaseAll(keyed);
    return keyed;
  }
  bool InMemory(const JobId& job) const { return controller().FindJob(job.value).ok(); }
  bool Archived(const JobId& job) const { return controller().FindArchived(job.value) == job; }
};

TEST(ArchiveScenarios, AFinishedJobLeavesMemoryAfterItsRetention) {
  FinishedJob h;
  h.Advance(seconds(59));
  EXPECT_TRUE(h.InMemory(h.id));
  h.Advance(seconds(2));
  EXPECT_FALSE(h.InMemory(h.id));
  EXPECT_TRUE(h.Archived(h.id));
  EXPECT_THAT(h.controller().Jobs(), IsEmpty());
  EXPECT_THAT(h.stored().jobs, IsEmpty());
  EXPECT_THAT(h.stored().attempts, IsEmpty());
  EXPECT_THAT(h.stored().archived, SizeIs(1));
}

// A scrub began in the event in which its job left memory; the node's answer or its end stopped the
// coordinator.
TEST(ArchiveScenarios, NoScrubBeginsForAJobThatLeavesMemory) {
  ControllerOptions options = Short();
  options.scrub_interval = minutes(1);
  RunningJob h(TrainYaml(), options);
  h.Checkpoint(h.id, 20);
  h.Manifest(h.id, h.Directory(h.id, 20));
  h.FinishAll(h.id);
  const std::vector<NodeName> nodes = h.Job(h.id).record->pending_release;
  for (const NodeName& node : nodes) h.Deliver(node.value, Released{h.id});
  h.Oversleep(minutes(3));
  EXPECT_EQ(h.controller().FindArchived(h.id.value), h.id);
  h.Leave("n1");
  h.Leave("n2");
}

TEST(ArchiveScenarios, AJobThatIsNotOverStays) {
  RunningJob h(CommandYaml(), Short());
  h.Advance(minutes(20));
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
}

// A command about an archived job reached another one that had its id for a name.
TEST(ArchiveScenarios, AnArchivedJobsIdIsNoNameOfALiveOne) {
  FinishedJob h;
  h.Advance(minutes(2));
  ASSERT_EQ(h.controller().FindArchived(h.id.value), h.id);
  h.Submit(CommandYaml("'" + h.id.value + "'"));
  EXPECT_EQ(h.controller().FindJob(h.id.value).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(h.controller().FindArchived(h.id.value), h.id);
}

TEST(ArchiveScenarios, ZeroKeepsJobsInMemory) {
  ControllerOptions options = Short();
  options.retain = Duration::zero();
  FinishedJob h(options);
  h.Advance(minutes(30));
  EXPECT_TRUE(h.InMemory(h.id));
}

TEST(ArchiveScenarios, AJobThatANodeStillHostsStaysUntilItIsReleased) {
  RunningJob h(CommandYaml(), Short());
  h.FinishAll(h.id);
  h.Advance(minutes(2));
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded);
  h.Deliver("n1", Released{h.id});
  h.Advance(seconds(1));
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded);
  h.Deliver("n2", Released{h.id});
  h.Advance(seconds(1));
  EXPECT_EQ(h.controller().FindArchived(h.id.value), h.id);
}

TEST(ArchiveScenarios, TheKeyOfAnArchivedJobStillReturnsIt) {
  FinishedJob h;
  const JobId keyed = h.FinishKeyed();
  h.Advance(minutes(2));
  ASSERT_TRUE(h.Archived(keyed));
  for (const bool restarted : {false, true}) {
    if (restarted) h.Restart();
    const Reply again = h.SubmitRaw(CommandYaml("keyed"), "key");
    ASSERT_TRUE(again.status.ok()) << again.status.ToString();
    const auto& accepted = std::get<SubmitAccepted>(again.body);
    EXPECT_EQ(accepted.id, keyed);
    EXPECT_EQ(accepted.name, "keyed");
    EXPECT_EQ(accepted.state, JobState::kSucceeded);
    EXPECT_TRUE(accepted.existed);
    const Reply other = h.SubmitRaw(CommandYaml("another"), "key");
    EXPECT_EQ(other.status.code(), StatusCode::kAlreadyExists);
    EXPECT_THAT(other.status.message(), HasSubstr(keyed.value));
  }
}

TEST(ArchiveScenarios, TheEndOfTheArchiveEndsIdAndKey) {
  FinishedJob h;
  const JobId keyed = h.FinishKeyed();
  h.Advance(minutes(9));
  EXPECT_TRUE(h.Archived(keyed));
  h.Advance(minutes(2));
  EXPECT_EQ(h.controller().FindJob(keyed.value).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(h.stored().archived, IsEmpty());
  EXPECT_NE(h.Submit(CommandYaml("keyed"), "key"), keyed);
}

TEST(ArchiveScenarios, APrefixIsUniqueAmongJobsInMemoryAndInTheArchive) {
  FinishedJob h;
  h.Advance(minutes(2));
  ASSERT_TRUE(h.Archived(h.id));
  EXPECT_EQ(h.controller().FindArchived(h.id.value.substr(0, 4)), h.id);
  h.Submit(CommandYaml("second"));
  EXPECT_EQ(h.controller().FindJob("00").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(h.controller().FindArchived("00"), JobId{});
}

TEST(ArchiveScenarios, AnArchivedJobIsNotChanged) {
  FinishedJob h;
  h.Advance(minutes(2));
  for (const Reply& reply : {h.Cancel(h.id), h.Suspend(h.id), h.Resume(h.id)}) {
    EXPECT_EQ(reply.status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(reply.status.message(), HasSubstr("archived"));
  }
}

TEST(ArchiveScenarios, CancellingACancelledJobAgainIsNoErrorInTheArchive) {
  ControlHarness h(Short());
  const JobId id = h.Submit(CommandYaml());
  h.Cancel(id);
  h.Advance(minutes(2));
  ASSERT_EQ(h.controller().FindArchived(id.value), id);
  EXPECT_TRUE(h.Cancel(id).status.ok());
}

TEST(ArchiveScenarios, TheOutputDirectoryOfAnArchivedJobIsFree) {
  FinishedJob h(Short(), TrainYaml());
  h.Advance(minutes(2));
  ASSERT_TRUE(h.Archived(h.id));
  EXPECT_TRUE(h.SubmitRaw(TrainYaml()).status.ok());
}

TEST(ArchiveScenarios, TheClustersGoodputKeepsTheTimeOfArchivedJobs) {
  FinishedJob h;
  const auto total = [&h] { return h.controller().ClusterGoodput(h.now().mono).total_seconds(); };
  h.Advance(seconds(30));
  const double idle = 2 * 90;  // two nodes with one slot each
  const double before = total();
  h.Advance(seconds(90));
  ASSERT_TRUE(h.Archived(h.id));
  EXPECT_NEAR(total(), before + idle, 0.1);
  h.Advance(minutes(20));
  EXPECT_NEAR(total(), before + idle + 2 * 1200, 0.1) << "deletion takes nothing away";
  h.Restart();
  EXPECT_NEAR(total(), before + idle + 2 * 1200, 0.1);
}

TEST(ArchiveScenarios, ARestartArchivesByWhenAJobEnded) {
  FinishedJob h;
  h.Advance(seconds(40));
  h.Restart();
  h.Advance(seconds(15));
  EXPECT_TRUE(h.InMemory(h.id));
  h.Advance(seconds(10));
  EXPECT_TRUE(h.Archived(h.id));
  h.Restart();
  EXPECT_TRUE(h.Archived(h.id));
  EXPECT_NE(h.Submit(CommandYaml("next")), h.id);
}

TEST(ArchiveScenarios, ManyJobsAreArchivedInSeveralCommits) {
  ControlHarness h(Short());
  for (int n = 0; n < 300; ++n) {
    const JobId id = h.Submit(CommandYaml("job-" + std::to_string(n)));
    h.Cancel(id);
  }
  h.Advance(minutes(2));
  EXPECT_EQ(h.controller().archived_jobs(), 300u);
}

TEST(ArchiveScenarios, ALostNodeWithNothingLeftIsForgotten) {
  ControlHarness h(Short());
  h.Join("n1");
  h.Join("n2");
  h.Leave("n2");
  h.Advance(minutes(1));
  ASSERT_EQ(h.Node("n2").record->state, NodeState::kLost);
  h.Advance(minutes(5));
  EXPECT_THAT(h.controller().Nodes(), SizeIs(1));
  EXPECT_THAT(h.stored().nodes, SizeIs(1));
  h.Join("n2");
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kReady);
}

TEST(ArchiveScenarios, ALostNodeIsForgottenAfterARestartToo) {
  ControlHarness h(Short());
  h.Join("n1");
  h.Leave("n1");
  h.Advance(minutes(2));
  h.Restart();
  h.Advance(minutes(2));
  EXPECT_THAT(h.controller().Nodes(), SizeIs(1));
  h.Advance(minutes(2));
  EXPECT_THAT(h.controller().Nodes(), IsEmpty());
}

TEST(ArchiveScenarios, ALostNodeThatMayHaveProcessesOfAJobIsKeptUntilTheJobIsArchived) {
  RunningJob h(CommandYaml(), Short());
  h.Leave("n2");
  h.Advance(minutes(7));
  ASSERT_EQ(h.Node("n2").record->state, NodeState::kLost);
  h.Cancel(h.id);
  h.QuiesceAll(h.id);
  h.Deliver("n1", Released{h.id});
  h.Advance(hours(2));
  EXPECT_THAT(h.controller().Jobs(), IsEmpty());
  EXPECT_THAT(h.controller().Nodes(), SizeIs(1));
}

TEST(ArchiveScenarios, ALostNodeThatAnOperatorDrainsIsKept) {
  ControlHarness h(Short());
  h.Join("n1");
  h.Leave("n1");
  h.Advance(minutes(1));
  ASSERT_TRUE(h.Drain("n1").status.ok());
  h.Advance(minutes(20));
  EXPECT_THAT(h.controller().Nodes(), SizeIs(1));
}

}  // namespace
}  // namespace muster
