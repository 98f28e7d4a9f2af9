#include "worker/allocation/auto_start.h"

#include <gtest/gtest.h>

#include <fstream>

#include "common/base/testing/temp_dir.h"
#include "common/job_spec/parse.h"

namespace muster::worker {
namespace {

constexpr char kCommandJob[] = "name: probe\ncommand: [sleep, '1']\nresources: {nodes: 2}\n";

class AutoStartTest : public testing::Test {
 protected:
  void SetUp() override {
    allocation_.cluster = "lab";
    allocation_.job_id = 41;
    allocation_.restart_count = 2;
    allocation_.nodes = {"n1", "n2", "n3"};
    allocation_.node_id = 1;
    allocation_.node_name = "n2";
    allocation_.launch_address = "127.0.0.1";
    allocation_.tmp_dir = "/scratch";
    flags_.job = temp_ / "job.yaml";
    flags_.interface = "lo";
    WriteJob(kCommandJob);
  }
  void WriteJob(const std::string& text) { std::ofstream(flags_.job, std::ios::trunc) << text; }
  Result<SupervisorOptions> Plan() const {
    return PlanSupervisor(TaskOfSlurm(allocation_), flags_, "/opt/bin");
  }
  void ExpectRefused(const std::string& word) const {
    const auto options = Plan();
    ASSERT_FALSE(options.ok());
    EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(options.status().message().find(word), std::string::npos)
        << options.status().message();
  }

  TempDirForTest temp_;
  slurm::Allocation allocation_;
  AutoFlags flags_;
};

TEST_F(AutoStartTest, EveryNodeComesToTheSameSharedDirectoryAndToItsOwnLocalOne) {
  const auto options = Plan();
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->allocation, "lab-41");
  EXPECT_EQ(options->run, 2);
  EXPECT_EQ(options->self.index, 1);
  EXPECT_EQ(options->self.node, "n2");
  EXPECT_EQ(options->self.address, "127.0.0.1");
  EXPECT_EQ(options->node_count, 3);
  EXPECT_EQ(options->shared_dir, temp_ / "muster-probe-slurm-41");
  EXPECT_EQ(options->monitor.max_in_vain, 0) << "a command tells of no steps";
  EXPECT_NE(options->local_dir.find("/41-2-n2"), std::string::npos);
  const auto spec = ParseJobSpec(options->job_yaml);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->workdir, temp_.path());
}

TEST_F(AutoStartTest, ATrainingJobKeepsItBesideItsOutput) {
  WriteJob(
      "name: t\ntrain: {model: {path: m}, data: {train: d.jsonl}, output: {dir: runs/a},\n"
      "  schedule: {max_steps: 1}}\n");
  const auto options = Plan();
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->shared_dir, temp_ / "runs/a/slurm-41");
  EXPECT_EQ(options->monitor.max_in_vain, 3);
}

TEST_F(AutoStartTest, WithoutAnInterfaceTheAddressIsThatOfTheWayToSrun) {
  flags_.interface.clear();
  const auto options = Plan();
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_FALSE(options->self.address.empty());
}

TEST_F(AutoStartTest, OverridesAreApplied) {
  flags_.overrides = {"resources.nodes=3", "name=other"};
  const auto options = Plan();
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(ParseJobSpec(options->job_yaml)->name, "other");
  EXPECT_NE(options->shared_dir.find("muster-other-"), std::string::npos);
}

TEST_F(AutoStartTest, TorchrunsCommandLineIsTheJobAndLiesInTheSharedDirectory) {
  flags_.job.clear();
  flags_.torchrun = {.words = {"--nproc-per-node=2", "train.py"},
                     .environment = {{"HF_HOME", "/models"}},
                     .directory = temp_.path()};
  flags_.overrides = {"restart.max_without_progress=7"};
  const auto options = Plan();
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->shared_dir, temp_ / "muster-train-slurm-41");
  const auto spec = ParseJobSpec(options->job_yaml);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->resources.nodes, 3);
  EXPECT_EQ(spec->restart.max_without_progress, 7);
  EXPECT_EQ(options->worker_arguments, (std::vector<std::string>{"--slots", "2", "--cpus", "0"}));
  // Another node's environment is not the same.
  flags_.torchrun.environment["HF_HOME"] = "/elsewhere";
  allocation_.node_id = 2;
  allocation_.node_name = "n3";
  EXPECT_EQ(Plan()->job_yaml, options->job_yaml);
  flags_.overrides = {"nonsense=1"};
  ExpectRefused("torchrun's command line with --set: nonsense");
}

TEST_F(AutoStartTest, AJobForMoreNodesThanThereAreIsRefusedAtOnce) {
  flags_.overrides = {"resources.nodes=4"};
  ExpectRefused("--nodes=4");
}

// It would wait in an allocation that is paid for.
TEST_F(AutoStartTest, AJobThatIsHeldOrBeginsLaterIsRefused) {
  WriteJob(std::string(kCommandJob) + "hold: true\n");
  ExpectRefused("--hold");
  WriteJob(std::string(kCommandJob) + "begin: now+2h\n");
  ExpectRefused("--begin");
}

TEST_F(AutoStartTest, AFileThatIsNoJobNamesTheLine) {
  WriteJob("name: x\ncommand: [x]\nnonsense: 1\n");
  ExpectRefused("job.yaml:3");
}

TEST_F(AutoStartTest, SlotsAreTheGpusThatSlurmGave) {
  WriteJob("name: t\ncommand: [x]\nresources: {nodes: 2, ranks_per_node: 2, device: cuda}\n");
  ExpectRefused("--gpus-per-node=2");
  allocation_.gpus_on_node = 4;
  EXPECT_EQ(Plan()->worker_arguments, (std::vector<std::string>{"--slots", "4", "--cpus", "0"}));
  allocation_.visible_gpus = std::vector<std::string>{"GPU-a", "GPU-b"};
  EXPECT_EQ(Plan()->worker_arguments, (std::vector<std::string>{"--slots", "2", "--cpus", "0"}));
  flags_.slots = 7;
  EXPECT_EQ(Plan()->worker_arguments, (std::vector<std::string>{"--slots", "7", "--cpus", "0"}));
}

TEST_F(AutoStartTest, TheSwitchesOverANodeAreItsFailureDomainUnlessAnotherIsGiven) {
  allocation_.switches = "s0.s2";
  EXPECT_EQ(Plan()->worker_arguments,
            (std::vector<std::string>{"--slots", "1", "--cpus", "0", "--failure-domain", "s0.s2"}));
  flags_.worker_arguments = {"--failure-domain=rack7"};
  EXPECT_EQ(Plan()->worker_arguments,
            (std::vector<std::string>{"--slots", "1", "--cpus", "0", "--failure-domain=rack7"}));
}

TEST_F(AutoStartTest, ANodeWithoutGpusOfAHeterogeneousJobHasNoWorker) {
  WriteJob("name: t\ncommand: [x]\nresources: {nodes: 2, ranks_per_node: 2, device: cuda}\n");
  allocation_.het_size = 2;
  const auto options = Plan();
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_FALSE(options->has_worker);
  EXPECT_FALSE(options->self.has_worker) << "the others are to know it";
  allocation_.gpus_on_node = 4;
  EXPECT_TRUE(Plan()->has_worker);
}

TEST_F(AutoStartTest, NamesThatNoCertificateMayHaveAreMadeFit) {
  allocation_.cluster = ".a cluster/with signs" + std::string(80, 'x');
  const auto options = Plan();
  ASSERT_TRUE(options.ok());
  EXPECT_LE(options->allocation.size(), 63u);
  EXPECT_TRUE(options->allocation.ends_with("-41"));
  EXPECT_EQ(options->allocation.find_first_of(" /"), std::string::npos);
}

}  // namespace
}  // namespace muster::worker
