// The cluster's queues: a new version of them, and what each has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTwoTeams[] = R"(queues:
  research:
    guarantee: {gpus: 48}
    queues:
      vision: {guarantee: {gpus: 32}, weight: 3}
      language: {}
  default: {}
)";

class QueueScenarios : public ::testing::Test {
 protected:
  std::uint64_t Version() const { return c_.controller().Queues().tree->version; }
  std::uint64_t AppliedVersion(const Reply& reply) {
    EXPECT_TRUE(reply.status.ok()) << reply.status.ToString();
    return reply.status.ok() ? std::get<QueuesAccepted>(reply.body).version : 0;
  }

  ControlHarness c_;
};

TEST_F(QueueScenarios, WithoutAFileThereIsOneQueueForEverything) {
  const QueuesView queues = c_.controller().Queues();
  EXPECT_EQ(*queues.tree, DefaultTree());
  EXPECT_EQ(*queues.yaml, "");
  ASSERT_EQ(queues.queues.size(), 1u);
  EXPECT_EQ(queues.queues[0].share, 1);
}

TEST_F(QueueScenarios, AnAppliedFileIsTheNextVersionAndOutlivesARestart) {
  const Reply reply = c_.ApplyQueues(kTwoTeams, 0);
  EXPECT_EQ(AppliedVersion(reply), 1u);
  EXPECT_THAT(std::get<QueuesAccepted>(reply.body).changes,
              ElementsAre("research: new, guarantee 0 -> 48 GPUs",
                          "vision: new, in research, guarantee 0 -> 32 GPUs, weight 1 -> 3",
                          "language: new, in research"));
  EXPECT_THAT(std::get<QueuesAccepted>(reply.body).warnings,
              ElementsAre(HasSubstr("the guarantees come to 48 GPUs, and the nodes have 0")));
  EXPECT_THAT(c_.Timeline(), HasSubstr("queues: version 1: research: new, guarantee 0 -> 48 GPUs; "
                                       "vision: new"));
  const QueueTree applied = *c_.controller().Queues().tree;
  c_.Restart();
  EXPECT_EQ(*c_.controller().Queues().tree, applied);
  EXPECT_EQ(*c_.controller().Queues().yaml, kTwoTeams);
  EXPECT_EQ(AppliedVersion(c_.ApplyQueues("queues: {default: {weight: 2}}", 1)), 2u);
  EXPECT_THAT(c_.Timeline(), HasSubstr("queues: version 2: default: weight 1 -> 2; research: "
                                       "removed; vision: removed; language: removed"));
}

TEST_F(QueueScenarios, OfTwoFilesForTheSameVersionTheSecondIsRefused) {
  ASSERT_EQ(AppliedVersion(c_.ApplyQueues(kTwoTeams, 0)), 1u);
  const Reply late = c_.ApplyQueues("queues: {default: {}}", 0);
  EXPECT_EQ(late.status.code(), StatusCode::kAborted);
  EXPECT_THAT(late.status.message(), HasSubstr("have version 1, and this file was to replace "
                                               "version 0: another file was applied in between"));
  EXPECT_THAT(late.status.message(), HasSubstr("next: muster queues show -o yaml"));
  EXPECT_EQ(c_.ApplyQueues(kTwoTeams, 7).status.code(), StatusCode::kAborted);
  EXPECT_EQ(*c_.controller().Queues().yaml, kTwoTeams);
}

TEST_F(QueueScenarios, ACallWhoseAnswerWasLostMayBeRepeated) {
  ASSERT_EQ(AppliedVersion(c_.ApplyQueues(kTwoTeams, 0)), 1u);
  c_.Restart();
  EXPECT_EQ(AppliedVersion(c_.ApplyQueues(kTwoTeams, 0)), 1u);
  EXPECT_EQ(AppliedVersion(c_.ApplyQueues(kTwoTeams, 1)), 1u) << "the same file is no new version";
  EXPECT_EQ(c_.stored().queues.version, 1u);
}

TEST_F(QueueScenarios, ACheckChangesNothing) {
  ASSERT_EQ(AppliedVersion(c_.ApplyQueues(kTwoTeams, 0)), 1u);
  const Reply checked = c_.ApplyQueues("queues: {default: {}}", 0, /*check_only=*/true);
  EXPECT_EQ(AppliedVersion(checked), 1u);
  EXPECT_THAT(std::get<QueuesAccepted>(checked.body).changes, testing::SizeIs(3));
  EXPECT_EQ(*c_.controller().Queues().yaml, kTwoTeams);
  EXPECT_EQ(c_.stored().queues.version, 1u);
}

TEST_F(QueueScenarios, AFileThatIsWrongIsRefusedWithItsLine) {
  const Reply reply = c_.ApplyQueues("queues:\n  default: {wait: 2}\n", 0);
  EXPECT_EQ(reply.status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(reply.status.message(), HasSubstr("queues.yaml:2: queues.default.wait: unknown key"));
  EXPECT_EQ(Version(), 0u);
}

// A tree that no file gives, since the default queue is in every one.
TEST_F(QueueScenarios, AQueueWithJobsIsNeitherRemovedNorDivided) {
  std::vector<JobId> jobs;
  for (int i = 0; i < 5; ++i) jobs.push_back(c_.Submit(CommandYaml("job-" + std::to_string(i))));
  QueueTree tree = DefaultTree();
  tree.queues[0].name = "other";
  QueuesApplyRequested request{.yaml = "x", .expected_version = 0, .tree = tree};
  const Reply removed = c_.Ask(request);
  EXPECT_EQ(removed.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      removed.status.message(),
      HasSubstr("queue default would be removed, and 5 jobs that are not over are in it: "));
  EXPECT_THAT(removed.status.message(), HasSubstr("(job-0)"));
  EXPECT_THAT(removed.status.message(),
              HasSubstr(" and 2 others\n  next: muster update JOB --queue"));
  tree.queues.insert(tree.queues.begin(), {.name = "default", .leaf = false});
  request.tree = tree;
  EXPECT_THAT(c_.Ask(request).status.message(),
              HasSubstr("queue default would have queues of its own"));
  for (std::size_t i = 1; i < jobs.size(); ++i) c_.Cancel(jobs[i]);
  EXPECT_THAT(c_.Ask(request).status.message(), HasSubstr("and 1 job that is not over is in it"));
  request.check_only = true;
  EXPECT_FALSE(c_.Ask(request).status.ok()) << "a check says it too";
  c_.Cancel(jobs[0]);
  EXPECT_TRUE(c_.Ask(request).status.ok());
}

TEST_F(QueueScenarios, AQueueMayMoveBelowOneThatWasBelowIt) {
  ASSERT_EQ(AppliedVersion(c_.ApplyQueues(kTwoTeams, 0)), 1u);
  const JobId job = c_.Submit(CommandYaml("job", "queue: vision\n"));
  const char* const turned =
      "queues: {vision: {queues: {research: {}, language: {}}}, default: {}}";
  EXPECT_THAT(c_.ApplyQueues(turned, 1).status.message(),
              HasSubstr("queue vision would have queues of its own, and 1 job"));
  UpdateRequested moves{.job = job.value};
  moves.queue = "language";
  ASSERT_TRUE(c_.Update(moves).status.ok());
  const Reply reply = c_.ApplyQueues(turned, 1);
  EXPECT_EQ(AppliedVersion(reply), 2u);
  EXPECT_THAT(std::get<QueuesAccepted>(reply.body).changes,
              testing::Contains(testing::AllOf(HasSubstr("research: "), HasSubstr("takes jobs now"),
                                               HasSubstr("moved: the top -> vision"))));
  const QueueTree& tree = *c_.controller().Queues().tree;
  EXPECT_EQ(tree.queues.at(static_cast<std::size_t>(tree.Find("research"))).parent,
            tree.Find("vision"));
  EXPECT_EQ(c_.controller().Queues().queues[0].waiting, 1) << "with the job of language";
}

// A queue that only a suspended job is in has one that is not over.
TEST_F(QueueScenarios, AQueueOfASuspendedOrHeldJobStays) {
  ASSERT_EQ(AppliedVersion(c_.ApplyQueues("queues: {default: {}, a: {}}", 0)), 1u);
  const JobId job = c_.Submit(CommandYaml("job", "queue: a\nhold: true\n"));
  const auto removed = [this] {
    return c_.ApplyQueues("queues: {default: {}}", 1).status.message();
  };
  EXPECT_THAT(removed(), HasSubstr("queue a would be removed, and 1 job"));
  ASSERT_TRUE(c_.Suspend(job).status.ok());
  EXPECT_THAT(removed(), HasSubstr("queue a would be removed, and 1 job"));
  c_.Cancel(job);
  EXPECT_EQ(removed(), "");
}

TEST_F(QueueScenarios, AClassThatJobsHaveIsNotRemoved) {
  c_.Submit(CommandYaml());
  QueueTree tree = DefaultTree();
  tree.classes.clear();
  const Reply reply = c_.Ask(QueuesApplyRequested{.yaml = "x", .tree = tree});
  EXPECT_EQ(reply.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(reply.status.message(), HasSubstr("class normal would be removed"));
  EXPECT_THAT(reply.status.message(), HasSubstr("next: muster update JOB --class"));
}

TEST_F(QueueScenarios, ShowsWhatJobsHaveAndWhatTheWeightsGive) {
  ASSERT_EQ(AppliedVersion(c_.ApplyQueues(kTwoTeams, 0)), 1u);
  c_.Join("n1");
  c_.Join("n2");
  const JobId running = c_.Submit(TrainYaml("runs"));
  c_.RunTo(running, 1);
  c_.Submit(TrainYaml("waits"));
  const QueuesView queues = c_.controller().Queues();
  const int at = queues.tree->Find(kDefaultQueue);
  ASSERT_EQ(at, 3);
  EXPECT_EQ(queues.queues[3].used, (Amounts{0, 2}));
  EXPECT_EQ(queues.queues[3].running, 1);
  EXPECT_EQ(queues.queues[3].waiting, 1);
  EXPECT_EQ(queues.queues[0].running, 0);
  EXPECT_EQ(queues.queues[0].share, 0.5);
  EXPECT_EQ(queues.queues[1].share, 0.375);
  EXPECT_EQ(queues.queues[2].share, 0.125);
}

TEST_F(QueueScenarios, CountsGpusByTheDevicesThatAJobHas) {
  c_.Join("n1", {.slots = 8, .gpus = 8});
  c_.StartAll(
      c_.Submit("name: gpus\n"
                "resources: {nodes: 1, ranks_per_node: 2, device: cuda}\n"
                "workdir: /jobs\n"
                "command: [./train]\n"));
  EXPECT_EQ(c_.controller().Queues().queues[0].used, (Amounts{2, 2}));
  const Reply reply = c_.ApplyQueues("queues: {default: {guarantee: {gpus: 9, slots: 8}}}", 0);
  EXPECT_THAT(std::get<QueuesAccepted>(reply.body).warnings,
              ElementsAre(HasSubstr("come to 9 GPUs, and the nodes have 8")));
}

}  // namespace
}  // namespace muster
