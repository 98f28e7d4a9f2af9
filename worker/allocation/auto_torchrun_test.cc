#include "worker/allocation/auto_torchrun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <thread>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/job_spec/parse.h"

namespace muster::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

slurm::Allocation ThreeNodes() {
  slurm::Allocation allocation;
  allocation.job_id = 41;
  allocation.nodes = {"n1", "n2", "n3"};
  allocation.cpus_on_node = 6;
  return allocation;
}

TorchrunCall Call(std::vector<std::string> words) {
  return {.words = std::move(words),
          .environment = {{"HF_HOME", "/models"},
                          {"SLURM_JOB_ID", "41"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_GPUS", "0,1"},
                          {"SLURMD_NODENAME", "n2"},
                          {"HOSTNAME", "n2.site"},
                          {"TMPDIR", "/scratch/41"},
                          {"PYTHON_EXEC", "/opt/py/bin/python"}},
          .directory = "/here"};
}

JobSpec SpecOf(const slurm::Allocation& allocation, const TorchrunCall& call) {
  const auto plan = PlanTorchrun(TaskOfSlurm(allocation), call);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  const auto spec = ParseJobSpec(plan->yaml);
  EXPECT_TRUE(spec.ok()) << spec.status().ToString();
  return *spec;
}

TEST(AutoTorchrun, ALineOfTorchrunsIsAJobOfAllNodes) {
  const JobSpec spec =
      SpecOf(ThreeNodes(), Call({"--nproc-per-node", "2", "train.py", "--lr", "1e-4"}));
  EXPECT_EQ(spec.resources.nodes, 3);
  EXPECT_EQ(spec.resources.ranks_per_node, 2);
  EXPECT_EQ(spec.workdir, "/here");
  EXPECT_THAT(spec.command, ElementsAre("/opt/py/bin/python", "-u", "train.py", "--lr", "1e-4"));
}

TEST(AutoTorchrun, TheGivenNumberOfNodesCounts) {
  EXPECT_EQ(SpecOf(ThreeNodes(), Call({"--nnodes=2", "a.py"})).resources.nodes, 2) << "and a spare";
  EXPECT_EQ(SpecOf(ThreeNodes(), Call({"--nnodes=1:8", "a.py"})).resources.nodes, 3);
  TorchrunCall call = Call({"a.py"});
  call.environment["PET_NNODES"] = "2";
  EXPECT_EQ(SpecOf(ThreeNodes(), call).resources.nodes, 2);
}

TEST(AutoTorchrun, GpusAreThoseThatSlurmGave) {
  slurm::Allocation allocation = ThreeNodes();
  allocation.gpus_on_node = 8;
  allocation.visible_gpus = std::vector<std::string>{"0", "1", "2", "3"};
  const JobSpec spec = SpecOf(allocation, Call({"--nproc-per-node=gpu", "a.py"}));
  EXPECT_EQ(spec.resources.ranks_per_node, 4);
  EXPECT_EQ(spec.resources.device, "cuda");
}

TEST(AutoTorchrun, TheScriptGetsTheJobsVariablesAndNotThoseOfOneTask) {
  const auto env = SpecOf(ThreeNodes(), Call({"a.py"})).env;
  std::set<std::string> names;
  for (const auto& [name, value] : env) names.insert(name);
  EXPECT_THAT(names, ElementsAre("HF_HOME", "PYTHON_EXEC", "SLURM_JOB_ID",
                                 "TORCH_NCCL_ASYNC_ERROR_HANDLING"));
}

TEST(AutoTorchrun, RefusalsAndNotesNameTheFlag) {
  const auto refused =
      PlanTorchrun(TaskOfSlurm(ThreeNodes()), Call({"--nproc-per-node=many", "a.py"}));
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("--nproc-per-node: expected"));
  EXPECT_THAT(PlanTorchrun(TaskOfSlurm(ThreeNodes()), Call({"--nnodes"})).status().message(),
              HasSubstr("--nnodes needs a value"));
  EXPECT_THAT(PlanTorchrun(TaskOfSlurm(ThreeNodes()), Call({"a.py"}))->notes, IsEmpty());
  EXPECT_THAT(PlanTorchrun(TaskOfSlurm(ThreeNodes()), Call({"--log-dir=/logs", "a.py"}))->notes,
              ElementsAre(HasSubstr("--slurm-job 41")));
}

TEST(AutoTorchrun, AllSupervisorsAndRunsComeToTheJobOfTheFirst) {
  const TempDirForTest temp;
  const std::string dir = temp / "state";
  constexpr int kNodes = 8;
  std::vector<std::string> agreed(kNodes);
  std::vector<std::thread> nodes;
  for (int i = 0; i < kNodes; ++i)
    nodes.emplace_back([&agreed, &dir, i] {
      const std::string node = "n" + std::to_string(i);
      const auto job = AgreeOnJob(dir, node, "name: " + node + "\n");
      agreed[static_cast<std::size_t>(i)] = job.ok() ? *job : job.status().ToString();
    });
  for (std::thread& node : nodes) node.join();
  EXPECT_EQ(std::set<std::string>(agreed.begin(), agreed.end()).size(), 1u) << agreed.front();
  EXPECT_THAT(agreed.front(), HasSubstr("name: n"));
  EXPECT_EQ(*AgreeOnJob(dir, "late", "name: late\n"), agreed.front());
  const auto files = std::filesystem::directory_iterator(dir);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "nothing else is left there";
}

}  // namespace
}  // namespace muster::worker
