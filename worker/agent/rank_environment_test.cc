#include "worker/agent/rank_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "common/base/testing/temp_dir.h"
#include "tests/support/saved_environment.h"

namespace muster::worker {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr char kJobDir[] = "/c/nodes/n1/jobs/00c0ffee00";

struct Case {
  LaunchContext context{.trainer_path = "/opt/muster-trainer",
                        .passed_through = {{"PATH", "/usr/bin:/bin"}, {"HOME", "/root"}}};
  JobSpec spec;
  Prepare prepare{.job = {"00c0ffee00"},
                  .job_name = "chat",
                  .generation = 3,
                  .output_dir = "/w/out",
                  .ranks = {{2, 0}, {3, 1}}};
  Launch launch{.job = {"00c0ffee00"},
                .generation = 3,
                .master_address = "10.0.0.1",
                .master_port = 4711,
                .world_size = 4,
                .node_rank = 1,
                .node_count = 2,
                .local_world_size = 2,
                .restart_count = 2,
                .max_restarts = 5};

  std::vector<std::string> Environment() const {
    return BuildRankEnvironment(context, spec, prepare, launch, prepare.ranks[1], kJobDir);
  }
  std::vector<GuardianLaunch> Launches() const {
    return BuildLaunches(context, spec, prepare, launch, kJobDir);
  }
};

// Devices by id, each a GPU of its own.
std::vector<NodeDevice> Gpus(const std::vector<std::string>& ids) {
  std::vector<NodeDevice> devices;
  for (const std::string& id : ids)
    devices.push_back({.device = {.id = id}, .cuda_name = id, .gpu = id});
  return devices;
}

Case CommandCase() {
  Case c;
  c.spec.command = {"sh", "run.sh"};
  c.spec.workdir = "/w";
  c.spec.resources.cpus_per_rank = 6;
  c.spec.env = {{"NCCL_DEBUG", "WARN"}};
  return c;
}

// A job on GPUs, of which the node's two ranks have these.
Case GpuCase(const std::vector<std::string>& ids) {
  Case c = CommandCase();
  c.spec.resources.device = "cuda";
  c.spec.resources.gpus.per_rank = 1;
  c.context.devices = Gpus({"GPU-a", "GPU-b", "GPU-c", "GPU-d"});
  c.prepare.devices = ids;
  return c;
}

Case TrainCase() {
  Case c = CommandCase();
  c.spec.command.clear();
  c.spec.train = TrainSpec{};
  return c;
}

TEST(RankEnvironment, ACommandsRankGetsTorchrunsVariablesAndNothingElse) {
  EXPECT_THAT(
      CommandCase().Environment(),
      ElementsAre(
          "CUDA_VISIBLE_DEVICES=", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2", "HOME=/root",
          "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=4711",
          "MUSTER_CHECKPOINT_DIR=/w/out/checkpoints", "MUSTER_GENERATION=3",
          "MUSTER_JOB_ID=00c0ffee00", "NCCL_DEBUG=WARN", "NODE_RANK=1", "OMP_NUM_THREADS=6",
          "PATH=/usr/bin:/bin", "RANK=3", "ROLE_NAME=default", "ROLE_RANK=3", "ROLE_WORLD_SIZE=4",
          "TORCHELASTIC_ERROR_FILE=" + std::string(kJobDir) + "/errors/g3-rank-3.json",
          "TORCHELASTIC_MAX_RESTARTS=5", "TORCHELASTIC_RESTART_COUNT=2",
          "TORCHELASTIC_RUN_ID=00c0ffee00", "TORCHELASTIC_USE_AGENT_STORE=True", "WORLD_SIZE=4"));
}

TEST(RankEnvironment, ARankOfAContainerEntersItAndHasItsPath) {
  Case c = CommandCase();
  c.context.guardian_path = "/opt/muster-guardian";
  c.context.passed_through["TMPDIR"] = "/node/tmp";
  c.prepare.hosts_master = true;
  c.spec.container.image = "a:1";
  EXPECT_THAT(c.Environment(), Not(Contains(StartsWith("PATH="))));
  EXPECT_THAT(c.Environment(), Not(Contains(StartsWith("TMPDIR="))));
  EXPECT_THAT(c.Launches()[0].argv, ElementsAre("/opt/muster-trainer", "store"));
  EXPECT_THAT(c.Launches()[1].argv,
              ElementsAre("/opt/muster-guardian", "run-in-container",
                          std::string(kJobDir) + "/container.json", "sh", "run.sh"));
  c.spec.env["PATH"] = "/job/bin";
  EXPECT_THAT(c.Environment(), Contains("PATH=/job/bin"));
}

TEST(RankEnvironment, AStandbyOfAContainerIsInIt) {
  Case c = TrainCase();
  c.context.guardian_path = "/opt/muster-guardian";
  c.spec.container.image = "a:1";
  const std::vector<std::string> argv =
      BuildStandby(c.context, c.spec, c.prepare, kJobDir).launch.argv;
  EXPECT_EQ(argv, c.Launches()[0].argv);
  EXPECT_THAT(argv, ElementsAre("/opt/muster-guardian", "run-in-container",
                                std::string(kJobDir) + "/container.json", "/opt/muster-trainer",
                                "train", std::string(kJobDir) + "/spec.yaml"));
}

TEST(RankEnvironment, CollectivesTakeTheNodesInterfacesUnlessTheJobNamesOthers) {
  Case c = CommandCase();
  EXPECT_THAT(c.Environment(), Not(Contains(HasSubstr("_SOCKET_IFNAME="))));
  EXPECT_THAT(c.Environment(), Not(Contains(StartsWith("MUSTER_BIND_ADDRESS="))));
  c.context.address = "10.1.0.4";
  c.context.interfaces = {"ib0", "ib1"};
  EXPECT_THAT(c.Environment(), Contains("NCCL_SOCKET_IFNAME==ib0,ib1"));
  EXPECT_THAT(c.Environment(), Contains("GLOO_SOCKET_IFNAME=ib0,ib1"));
  EXPECT_THAT(c.Environment(), Contains("MUSTER_BIND_ADDRESS=10.1.0.4"));
  c.spec.env["NCCL_SOCKET_IFNAME"] = "eth0";
  EXPECT_THAT(c.Environment(), Contains("NCCL_SOCKET_IFNAME=eth0"));
  EXPECT_THAT(c.Environment(), Contains("GLOO_SOCKET_IFNAME=ib0,ib1"));
}

TEST(RankEnvironment, RanksAreKeptToProcessorsWhereTheJobHasTheNodeToItself) {
  Case c = TrainCase();
  c.spec.resources.cpus_per_rank = 2;
  c.context.cpus.cores = {{{0, 4}, 0}, {{1, 5}, 0}, {{2, 6}, 1}, {{3, 7}, 1}};
  c.context.slots = 2;
  EXPECT_THAT(c.Launches()[0].cpus, ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(c.Launches()[1].cpus, ElementsAre(2, 3, 6, 7));
  EXPECT_EQ(c.Launches()[1].memory_node, 1);
  c.spec.resources.device = "cuda";
  c.spec.resources.gpus.per_rank = 1;
  c.context.devices = Gpus({"GPU-a", "GPU-b", "GPU-c"});
  c.context.devices[0].device.numa_node = 0;
  c.context.devices[2].device.numa_node = 1;
  c.prepare.devices = {"GPU-c", "GPU-a"};
  EXPECT_THAT(c.Launches()[0].cpus, ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(c.Launches()[1].cpus, ElementsAre(0, 1, 4, 5));
  c.context.slots = 3;
  EXPECT_THAT(c.Launches()[0].cpus, IsEmpty()) << "another job may come";
  c.context.slots = 2;
  c.prepare.devices = {"GPU-c", "GPU-b"};
  EXPECT_THAT(c.Launches()[0].cpus, IsEmpty()) << "where the second GPU is is not known";
  c.spec.resources.gpus.per_rank = 2;
  c.prepare.devices = {"GPU-a", "GPU-c"};
  EXPECT_THAT(PlanRankCpus(c.context, c.spec, c.prepare).sentence,
              HasSubstr("GPUs of several NUMA nodes"));
  c.spec.resources.device = "cpu";
  EXPECT_THAT(c.Launches()[0].cpus, ElementsAre(0, 1, 4, 5));
  c.spec.env["OMP_PLACES"] = "cores";
  EXPECT_THAT(c.Launches()[0].cpus, IsEmpty());
  c.spec.env.clear();
  c.spec.resources.cpu_binding = "none";
  EXPECT_THAT(c.Launches()[0].cpus, IsEmpty());
}

TEST(RankEnvironment, ACommandsRanksAreKeptToProcessorsToo) {
  Case c = CommandCase();
  c.spec.resources.cpus_per_rank = 4;
  c.prepare.hosts_master = true;
  c.context.cpus.cores = {{{0, 4}, 0}, {{1, 5}, 0}, {{2, 6}, 1}, {{3, 7}, 1}};
  c.context.slots = 2;
  const auto launches = c.Launches();
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_THAT(launches[0].cpus, IsEmpty()) << "that of the rendezvous";
  EXPECT_THAT(launches[1].cpus, ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(launches[2].cpus, ElementsAre(2, 3, 6, 7));
}

TEST(RankEnvironment, ATrainersRankGetsTheBuddyRing) {
  Case c = TrainCase();
  EXPECT_THAT(c.Environment(), Not(Contains(StartsWith("MUSTER_BUDDY_RING="))));
  c.launch.buddy_ring = {1, 0};
  EXPECT_THAT(c.Environment(), Contains("MUSTER_BUDDY_RING=1,0"));
  c = CommandCase();
  c.launch.buddy_ring = {1, 0};
  EXPECT_THAT(c.Environment(), Not(Contains(StartsWith("MUSTER_BUDDY_RING="))));
}

TEST(RankEnvironment, AProgramThatBindsItselfIsConfiguredForIt) {
  Case c = CommandCase();
  c.spec.rendezvous = RendezvousKind::kRank0;
  EXPECT_THAT(c.Environment(), Contains("TORCHELASTIC_USE_AGENT_STORE=False"));
}

TEST(RankEnvironment, ATrainersRankGetsItsDescriptorsAndResumeFile) {
  const auto environment = TrainCase().Environment();
  EXPECT_THAT(environment, Contains("MUSTER_CONTROL_FD=3"));
  EXPECT_THAT(environment, Contains("MUSTER_ASSIGN=1"));
  EXPECT_THAT(environment, Contains("MUSTER_PROGRESS_FD=4"));
  EXPECT_THAT(environment,
              Contains("MUSTER_RESUME_FILE=" + std::string(kJobDir) + "/resume-g3.json"));
  // Only rank 0 listens, and only a command's program asks for the agent's store.
  EXPECT_THAT(environment, Not(Contains(StartsWith("MUSTER_LISTEN_FD="))));
  EXPECT_THAT(environment, Not(Contains(StartsWith("TORCHELASTIC_USE_AGENT_STORE="))));
}

// Case::Environment is that of the second rank on the node.
TEST(RankEnvironment, ARankSeesItsOwnDevicesAndNothingElse) {
  Case c = GpuCase({"GPU-d", "GPU-b"});
  EXPECT_THAT(c.Environment(), Contains("CUDA_VISIBLE_DEVICES=GPU-b"));
  EXPECT_THAT(c.Environment(), Contains("CUDA_DEVICE_ORDER=PCI_BUS_ID"));
  EXPECT_THAT(c.Environment(), Not(Contains(StartsWith("NCCL_HOSTID="))));
  EXPECT_THAT(c.Environment(), Not(Contains(StartsWith("MUSTER_FAKE_GPUS="))));
  c.spec.resources.gpus.per_rank = 2;
  c.prepare.devices = {"GPU-d", "GPU-b", "GPU-c", "GPU-a"};
  EXPECT_THAT(c.Environment(), Contains("CUDA_VISIBLE_DEVICES=GPU-c,GPU-a"));
  c.prepare.devices = {"GPU-d", "GPU-b"};
  EXPECT_THAT(c.Environment(), Contains("CUDA_VISIBLE_DEVICES=")) << "none are left for it";
}

TEST(RankEnvironment, ADeviceIsNamedAsCudaKnowsIt) {
  Case c = GpuCase({"n1-gpu4", "n1-gpu5"});
  c.context.devices = Gpus({"n1-gpu4", "n1-gpu5"});
  c.context.devices[1].cuda_name = "5";
  EXPECT_THAT(c.Environment(), Contains("CUDA_VISIBLE_DEVICES=5"));
}

TEST(RankEnvironment, ARankOfACommandMaySeeAllDevicesThatTheJobHasOnTheNode) {
  Case c = GpuCase({"GPU-d", "GPU-b"});
  c.spec.resources.sees_all_gpus = true;
  EXPECT_THAT(c.Environment(), Contains("CUDA_VISIBLE_DEVICES=GPU-d,GPU-b"));
}

TEST(RankEnvironment, RanksThatShareAGpuAreHostsOfTheirOwnToNccl) {
  Case c = GpuCase({"GPU-a", "GPU-a#2"});
  c.context.devices.push_back(c.context.devices[0]);
  c.context.devices.back().device.id = "GPU-a#2";
  EXPECT_THAT(c.Environment(), Contains("CUDA_VISIBLE_DEVICES=GPU-a"));
  EXPECT_THAT(c.Environment(), Contains("NCCL_HOSTID=00c0ffee00-3"));
  c.prepare.devices = {"GPU-b", "GPU-a#2"};
  EXPECT_THAT(c.Environment(), Contains("CUDA_VISIBLE_DEVICES=GPU-a"));
  EXPECT_THAT(c.Environment(), Not(Contains(StartsWith("NCCL_HOSTID="))))
      << "the other share is another job's";
  c.spec.resources.sees_all_gpus = true;
  c.prepare.devices = {"GPU-a", "GPU-a#2"};
  EXPECT_THAT(c.Environment(), Contains("CUDA_VISIBLE_DEVICES=GPU-a")) << "once";
}

TEST(RankEnvironment, ARankOnFakeDevicesKnowsThatTheyAre) {
  Case c = GpuCase({"FAKE-n1-1", "FAKE-n1-0"});
  c.context.devices = Gpus({"FAKE-n1-0", "FAKE-n1-1"});
  for (NodeDevice& one : c.context.devices) one.device.fake = true;
  EXPECT_THAT(c.Environment(), Contains("CUDA_VISIBLE_DEVICES=FAKE-n1-0"));
  EXPECT_THAT(c.Environment(), Contains("MUSTER_FAKE_GPUS=1"));
  EXPECT_THAT(BuildStandby(c.context, c.spec, c.prepare, kJobDir).launch.environment,
              Contains("MUSTER_FAKE_GPUS=1"));
  c.spec.resources.device = "cpu";
  EXPECT_THAT(c.Environment(), Not(Contains(StartsWith("MUSTER_FAKE_GPUS="))));
}

TEST(RankEnvironment, EveryRankGetsTheLocksOfItsDevicesAndTheStoreNone) {
  Case c = CommandCase();
  c.spec.resources.gpus.per_rank = 2;
  c.prepare.ranks = {{4, 0}, {5, 1}};
  c.prepare.hosts_master = true;
  c.prepare.devices = {"A", "B", "C", "D"};
  const auto devices = [&] {
    std::vector<std::vector<std::string>> all;
    for (const GuardianLaunch& launch : c.Launches()) all.push_back(launch.devices);
    return all;
  };
  using Names = std::vector<std::string>;
  EXPECT_THAT(devices(), ElementsAre(Names{}, Names{"A", "B"}, Names{"C", "D"}));
  c.spec.resources.sees_all_gpus = true;
  EXPECT_THAT(devices(), ElementsAre(Names{}, c.prepare.devices, c.prepare.devices));
  c.prepare.devices.clear();
  EXPECT_THAT(devices(), ElementsAre(Names{}, Names{}, Names{}));
}

TEST(RankEnvironment, ACpuJobSeesNoGpu) {
  Case c = TrainCase();
  c.context.devices = Gpus({"GPU-a", "GPU-b"});
  EXPECT_THAT(c.Environment(), Contains("CUDA_VISIBLE_DEVICES="));
}

TEST(RankEnvironment, TheJobsOwnVariablesWinOverTheWorkers) {
  Case c = CommandCase();
  c.spec.env["HOME"] = "/data";
  EXPECT_THAT(c.Environment(), Contains("HOME=/data"));
}

TEST(RankEnvironment, ARunsIdIsTheSameInEveryJobOfIt) {
  Case c = CommandCase();
  EXPECT_THAT(c.Environment(), Contains("TORCHELASTIC_RUN_ID=00c0ffee00"));
  c.spec.env["TORCHELASTIC_RUN_ID"] = "chat-7";
  EXPECT_TRUE(CheckJobEnvironment(c.spec).ok());
  EXPECT_THAT(c.Environment(), Contains("TORCHELASTIC_RUN_ID=chat-7"));
  EXPECT_THAT(c.Environment(), Contains("MUSTER_JOB_ID=00c0ffee00"));
}

TEST(RankEnvironment, AJobMayNotSetWhatMusterSets) {
  for (const char* name : {"RANK", "MASTER_PORT", "MUSTER_JOB_ID", "MUSTER_ANYTHING",
                           "TORCHELASTIC_ERROR_FILE", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"}) {
    JobSpec spec;
    spec.env = {{name, "1"}};
    const Status status = CheckJobEnvironment(spec);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), HasSubstr(name));
  }
  JobSpec fine;
  fine.env = {{"NCCL_DEBUG", "WARN"}, {"PATH", "/bin"}};
  EXPECT_TRUE(CheckJobEnvironment(fine).ok());
}

TEST(RankEnvironment, OnlyNamedVariablesOfTheWorkerPassThrough) {
  const SavedEnvironment environment;
  ::setenv("MUSTER_TEST_SECRET", "1", 1);
  ::setenv("TMPDIR", "/scratch", 1);
  ::setenv("NCCL_IB_HCA", "=mlx5_0", 1);
  const auto passed = PassedThroughVariables();
  EXPECT_FALSE(passed.contains("MUSTER_TEST_SECRET"));
  EXPECT_EQ(passed.at("TMPDIR"), "/scratch");
  EXPECT_EQ(passed.at("NCCL_IB_HCA"), "=mlx5_0");
}

TEST(BuildLaunches, ATrainJobsRanksRunTheTrainerInTheWorkdir) {
  Case c = TrainCase();
  c.prepare.hosts_master = true;
  c.prepare.ranks = {{0, 0}, {1, 1}};
  const auto launches = c.Launches();
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_THAT(launches[0].argv,
              ElementsAre("/opt/muster-trainer", "train", std::string(kJobDir) + "/spec.yaml"));
  EXPECT_EQ(launches[0].working_directory, "/w");
  EXPECT_EQ(launches[0].log_path, "/w/out/logs/3/rank-0.log");
  EXPECT_TRUE(launches[0].control);
  EXPECT_TRUE(launches[0].listen);
  EXPECT_THAT(launches[0].environment, Not(Contains(StartsWith("MUSTER_LISTEN_FD="))))
      << "it comes with the assignment";
  EXPECT_TRUE(launches[1].control);
  EXPECT_FALSE(launches[1].listen);
}

TEST(BuildLaunches, TheTokenIsInNoEnvironmentOfATrainersRank) {
  Case c = TrainCase();
  c.launch.rendezvous_token = "aabb";
  for (const GuardianLaunch& launch : c.Launches()) {
    EXPECT_EQ(launch.rendezvous_token, "aabb");
    EXPECT_THAT(launch.environment, Not(Contains(HasSubstr("aabb"))));
  }
  c = CommandCase();
  c.launch.rendezvous_token = "aabb";
  for (const GuardianLaunch& launch : c.Launches()) {
    EXPECT_EQ(launch.rendezvous_token, "");
    EXPECT_THAT(launch.environment, Contains("MUSTER_RENDEZVOUS_TOKEN=aabb"));
  }
}

TEST(BuildLaunches, TheMastersNodeServesTheStoreOfAnAgentJobFirst) {
  Case c = CommandCase();
  c.prepare.hosts_master = true;
  const auto launches = c.Launches();
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_EQ(launches[0].rank, kStoreRank);
  EXPECT_THAT(launches[0].argv, ElementsAre("/opt/muster-trainer", "store"));
  EXPECT_TRUE(launches[0].listen);
  EXPECT_EQ(launches[0].log_path, "/w/out/logs/3/store.log");
  EXPECT_THAT(launches[1].argv, ElementsAre("sh", "run.sh"));
  EXPECT_FALSE(launches[1].listen);
  EXPECT_FALSE(launches[1].control);
}

TEST(BuildLaunches, OtherNodesAndOtherRendezvousNeedNoStore) {
  Case c = CommandCase();
  EXPECT_EQ(c.Launches().size(), 2u);
  c.prepare.hosts_master = true;
  c.spec.rendezvous = RendezvousKind::kRank0;
  EXPECT_EQ(c.Launches().size(), 2u);
}

TEST(MasterSocketFor, FollowsTheKindOfTheJob) {
  Case c = CommandCase();
  EXPECT_EQ(MasterSocketFor(c.spec, false), MasterSocket::kNone);
  EXPECT_EQ(MasterSocketFor(c.spec, true), MasterSocket::kListen);
  c.spec.rendezvous = RendezvousKind::kRank0;
  EXPECT_EQ(MasterSocketFor(c.spec, true), MasterSocket::kBindOnly);
  EXPECT_EQ(MasterSocketFor(TrainCase().spec, true), MasterSocket::kListen);
}

TEST(Standby, IsStartedWithNothingThatBelongsToARankOrAGeneration) {
  Case c = TrainCase();
  c.prepare.standbys = 2;
  const GuardianStandby standby = BuildStandby(c.context, c.spec, c.prepare, kJobDir);
  EXPECT_EQ(standby.count, 2);
  EXPECT_FALSE(standby.at_once);
  EXPECT_TRUE(standby.launch.control);
  EXPECT_EQ(standby.launch.log_path, std::string(kJobDir) + "/standby.log");
  EXPECT_THAT(standby.launch.argv,
              ElementsAre("/opt/muster-trainer", "train", std::string(kJobDir) + "/spec.yaml"));
  EXPECT_THAT(
      standby.launch.environment,
      ElementsAre("CUDA_VISIBLE_DEVICES=", "HOME=/root", "MUSTER_ASSIGN=1", "MUSTER_CONTROL_FD=3",
                  "MUSTER_JOB_ID=00c0ffee00", "MUSTER_PROGRESS_FD=4", "NCCL_DEBUG=WARN",
                  "OMP_NUM_THREADS=6", "PATH=/usr/bin:/bin",
                  "TORCHELASTIC_ERROR_FILE=" + std::string(kJobDir) + "/errors/standby.json"));
}

TEST(Standby, WaitsAtOnceOnASpareAndIsNotTiedToAGpu) {
  Case c = TrainCase();
  c.prepare.spare = true;
  c.spec.resources.device = "cuda";
  const GuardianStandby standby = BuildStandby(c.context, c.spec, c.prepare, kJobDir);
  EXPECT_TRUE(standby.at_once);
  EXPECT_THAT(standby.launch.environment, Not(Contains(StartsWith("CUDA_VISIBLE_DEVICES"))));
}

TEST(Launches, NameAllRanksOfTheNode) {
  for (const GuardianLaunch& launch : TrainCase().Launches())
    EXPECT_THAT(launch.node_ranks, ElementsAre(2, 3));
}

}  // namespace
}  // namespace muster::worker
