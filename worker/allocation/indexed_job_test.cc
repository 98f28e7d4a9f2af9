#include "worker/allocation/indexed_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

slurm::Environment SecondOfThree() {
  return {{"JOB_COMPLETION_INDEX", "1"},   {"MUSTER_COMPLETIONS", "3"},
          {"MUSTER_JOB_NAME", "chat"},     {"MUSTER_JOB_UID", "0f3c2a1b-77aa-4b6e-9d0e-1"},
          {"MUSTER_SERVICE", "chat-pods"}, {"TMPDIR", "/scratch"}};
}

TEST(IndexedJob, APodLearnsItsPeersFromItsEnvironment) {
  const auto task = ReadIndexedJob(SecondOfThree());
  ASSERT_TRUE(task.ok()) << task.status().ToString();
  EXPECT_THAT(task->nodes, ElementsAre("chat-0", "chat-1", "chat-2"));
  EXPECT_EQ(task->node_name(), "chat-1");
  EXPECT_EQ(HostOf(*task, SecondOfThree()), "chat-1.chat-pods");
  EXPECT_EQ(task->allocation, "chat-0f3c2a1b");
  EXPECT_EQ(task->step, "0f3c2a1b-77aa-4b6e-9d0e-1");
  EXPECT_EQ(task->run, std::nullopt) << "Kubernetes does not count how often a job ran";
  EXPECT_EQ(task->state_name, "kubernetes-chat-0f3c2a1b");
  EXPECT_EQ(task->tmp_dir, "/scratch");
}

TEST(IndexedJob, APodOfAnotherKindIsNone) {
  EXPECT_TRUE(InIndexedJob(SecondOfThree()));
  EXPECT_FALSE(InIndexedJob({{"MUSTER_COMPLETIONS", "3"}}));
}

TEST(IndexedJob, AVariableThatIsMissingOrWrongIsNamed) {
  const struct {
    const char* name;
    const char* value;
    const char* said;
  } rows[] = {{"MUSTER_COMPLETIONS", "", "spec.completions"},
              {"MUSTER_COMPLETIONS", "many", "'many'; expected a number from 1"},
              {"MUSTER_COMPLETIONS", "1", "JOB_COMPLETION_INDEX is '1'"},
              {"JOB_COMPLETION_INDEX", "3", "from 0 to 2"},
              {"MUSTER_JOB_NAME", "", "batch.kubernetes.io/job-name"},
              {"MUSTER_JOB_UID", "", "batch.kubernetes.io/controller-uid"},
              {"MUSTER_SERVICE", "", "headless Service"}};
  for (const auto& row : rows) {
    slurm::Environment environment = SecondOfThree();
    environment[row.name] = row.value;
    const auto task = ReadIndexedJob(environment);
    EXPECT_EQ(task.status().code(), StatusCode::kInvalidArgument) << row.name;
    EXPECT_THAT(task.status().message(), HasSubstr(row.said)) << row.name;
  }
}

TEST(IndexedJob, GpusAreThoseThatTheDevicePlugInNames) {
  const auto gpus = [](const std::string& name, const std::string& value) {
    slurm::Environment environment = SecondOfThree();
    environment[name] = value;
    return ReadIndexedJob(environment)->gpus;
  };
  EXPECT_EQ(gpus("NVIDIA_VISIBLE_DEVICES", "GPU-a,GPU-b"), 2);
  EXPECT_EQ(gpus("NVIDIA_VISIBLE_DEVICES", "all"), 0) << "it does not say how many";
  EXPECT_EQ(gpus("NVIDIA_VISIBLE_DEVICES", "void"), 0);
  EXPECT_EQ(gpus("CUDA_VISIBLE_DEVICES", "0"), 1);
}

TEST(IndexedJob, ANameWithoutAnAddressIsAnErrorAfterTheLimit) {
  EXPECT_EQ(AwaitAddress("127.0.1.7", Duration::zero()).value(), "127.0.1.7");
  const auto none = AwaitAddress("no-such-pod.invalid", Duration::zero());
  EXPECT_EQ(none.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(none.status().message(), HasSubstr("subdomain"));
}

TEST(IndexedJob, WorkThatIsLeftIsDoneByThePodsExitCode) {
  const auto scheduler = MakeIndexedJobScheduler(2);
  const ClosingResult closed = CloseAllocation(
      *scheduler,
      {.ending = {.exit_code = 75, .action = EndAction::kRequeue, .reason = "", .exclude = {}},
       .run = 2,
       .node = "chat-1",
       .below = {"chat-0"},
       .missing = {"chat-0"},
       .silent = {"chat-0"}});
  EXPECT_EQ(closed.closing, Closing::kDone);
  EXPECT_TRUE(closed.requeued);
}

}  // namespace
}  // namespace muster::worker
