#include "common/slurm/allocation.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace muster::slurm {
namespace {

// What a task of `sbatch -N3 --gpus-per-node=2` and srun got on n2, of Slurm 22.05.
Environment Step() {
  return {{"SLURM_CLUSTER_NAME", "lab"},
          {"SLURM_JOB_ID", "42"},
          {"SLURM_JOB_NODELIST", "n[1-3]"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NODELIST", "n[1-3]"},
          {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
          {"SLURM_TASKS_PER_NODE", "4(x3)"},
          {"SLURM_NNODES", "3"},
          {"SLURM_NODEID", "1"},
          {"SLURM_PROCID", "1"},
          {"SLURMD_NODENAME", "n2"},
          {"SLURM_CPUS_ON_NODE", "4"},
          {"SLURM_GPUS_ON_NODE", "2"},
          {"CUDA_VISIBLE_DEVICES", "0,1"},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.77.0.1"},
          {"SLURM_SRUN_COMM_HOST", "10.77.0.1"},
          {"SLURM_SUBMIT_DIR", "/shared/run"},
          {"SLURM_TOPOLOGY_ADDR", "n2"}};
}

Environment With(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}

std::string ErrorOf(const Environment& environment) {
  const auto allocation = ReadAllocation(environment);
  return allocation.ok() ? "no error" : allocation.status().ToString();
}

TEST(Allocation, IsReadFromTheVariablesOfAStep) {
  const auto allocation = ReadAllocation(Step());
  ASSERT_TRUE(allocation.ok()) << allocation.status().ToString();
  EXPECT_EQ(allocation->cluster, "lab");
  EXPECT_EQ(allocation->job_id, 42u);
  EXPECT_TRUE(allocation->in_step);
  EXPECT_EQ(allocation->nodes, std::vector<std::string>({"n1", "n2", "n3"}));
  EXPECT_EQ(allocation->node_id, 1);
  EXPECT_EQ(allocation->node_name, "n2");
  EXPECT_EQ(allocation->node_count(), 3);
  EXPECT_EQ(allocation->cpus_on_node, 4);
  EXPECT_EQ(allocation->gpus_on_node, 2);
  EXPECT_EQ(allocation->visible_gpus, std::vector<std::string>({"0", "1"}));
  EXPECT_EQ(allocation->launch_address, "10.77.0.1");
  EXPECT_EQ(allocation->tmp_dir, "/tmp");
  EXPECT_EQ(allocation->restart_count, 0);
  EXPECT_FALSE(allocation->array);
  EXPECT_FALSE(allocation->end_unix_seconds);
}

TEST(Allocation, ReadsWhatIsNotAlwaysSet) {
  const auto allocation = ReadAllocation(With(Step(), {{"SLURM_RESTART_COUNT", "2"},
                                                       {"SLURM_ARRAY_JOB_ID", "40"},
                                                       {"SLURM_ARRAY_TASK_ID", "0"},
                                                       {"SLURM_JOB_END_TIME", "1790000000"},
                                                       {"SLURM_TMPDIR", "/scratch/42"},
                                                       {"TMPDIR", "/elsewhere"}}));
  ASSERT_TRUE(allocation.ok()) << allocation.status().ToString();
  EXPECT_EQ(allocation->restart_count, 2);
  EXPECT_EQ(allocation->array, (ArrayTask{40, 0}));
  EXPECT_EQ(allocation->end_unix_seconds, 1790000000);
  EXPECT_EQ(allocation->tmp_dir, "/scratch/42");
}

TEST(Allocation, ReadsTheSwitchesOverTheNode) {
  const auto switches = [](const std::string& address) {
    return ReadAllocation(With(Step(), {{"SLURM_TOPOLOGY_ADDR", address}}))->switches;
  };
  EXPECT_EQ(switches("s0.s2.n2"), "s0.s2");
  EXPECT_EQ(switches("block1.n2"), "block1");
  for (const char* none : {"", "n2", "s0.n3", "s0.xn2"}) EXPECT_EQ(switches(none), "") << none;
}

TEST(Allocation, GpusAreVisibleUpToTheFirstNumberBelowZero) {
  using Gpus = std::vector<std::string>;
  EXPECT_EQ(VisibleGpus("0,GPU-ab,,2"), (Gpus{"0", "GPU-ab", "2"}));
  EXPECT_EQ(VisibleGpus("1,-1,0"), (Gpus{"1"}));
  for (const char* none : {"", "-1", "NoDevFiles"}) EXPECT_EQ(VisibleGpus(none), Gpus()) << none;
}

TEST(Allocation, DistinguishesNoGpusFromAnUnknownNumber) {
  Environment environment = Step();
  environment["CUDA_VISIBLE_DEVICES"] = "";
  EXPECT_EQ(ReadAllocation(environment)->visible_gpus, std::vector<std::string>());
  environment["CUDA_VISIBLE_DEVICES"] = "NoDevFiles";
  EXPECT_EQ(ReadAllocation(environment)->visible_gpus, std::vector<std::string>());
  environment.erase("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(ReadAllocation(environment)->visible_gpus, std::nullopt);
}

TEST(Allocation, AHeterogeneousJobHasAllComponentsNodes) {
  const Environment components = {{"SLURM_HET_SIZE", "2"},
                                  {"SLURM_JOB_ID", "8"},
                                  {"SLURM_JOB_ID_HET_GROUP_0", "7"},
                                  {"SLURM_JOB_ID_HET_GROUP_1", "8"},
                                  {"SLURM_JOB_NODELIST", "n[2-3]"},
                                  {"SLURM_JOB_NODELIST_HET_GROUP_0", "c1"},
                                  {"SLURM_JOB_NODELIST_HET_GROUP_1", "n[2-3]"}};
  const auto whole = ReadAllocation(With(Step(), components));
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  EXPECT_EQ(whole->job_id, 7u);
  EXPECT_EQ(whole->nodes, std::vector<std::string>({"c1", "n2", "n3"}));
  EXPECT_EQ(whole->node_id, 1);
  const auto one = ReadAllocation(
      With(With(Step(), components),
           {{"SLURM_NNODES", "2"}, {"SLURM_STEP_NODELIST", "n[2-3]"}, {"SLURM_NODEID", "0"}}));
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  EXPECT_EQ(one->nodes, std::vector<std::string>({"n2", "n3"}));
  EXPECT_EQ(one->node_id, 0);
}

TEST(Allocation, DistinguishesStepsWithTheSameNumbers) {
  const auto step_of = [](const Environment& changes) {
    return ReadAllocation(With(Step(), changes))->step;
  };
  const Environment base = {{"SLURM_STEP_ID", "0"}, {"SLURM_SRUN_COMM_PORT", "40001"}};
  EXPECT_EQ(step_of(base), step_of(With(base, {{"SLURM_NODEID", "1"}, {"SLURMD_NODENAME", "n2"}})))
      << "it is that of all its tasks";
  const Environment others[] = {{{"SLURM_STEP_ID", "1"}},
                                {{"SLURM_SRUN_COMM_PORT", "40002"}},
                                {{"SLURM_RESTART_COUNT", "7"}},
                                {{"SLURM_CLUSTER_NAME", "elsewhere"}},
                                {{"SLURM_JOB_START_TIME", "1700000000"}}};
  for (const Environment& other : others) EXPECT_NE(step_of(base), step_of(With(base, other)));
}

TEST(Allocation, NeedsOneTaskPerNode) {
  EXPECT_NE(ErrorOf(With(Step(), {{"SLURM_STEP_TASKS_PER_NODE", "1,4(x2)"}}))
                .find("the step has 4 tasks on a node (1,4(x2)), but one muster-worker starts all"),
            std::string::npos);
  Environment shell = Step();
  shell.erase("SLURM_STEP_ID");
  EXPECT_NE(ErrorOf(shell).find("on one of its 3 nodes; each node needs a muster-worker: srun "
                                "--ntasks-per-node=1"),
            std::string::npos);
  // On one node the batch script may do without srun.
  shell["SLURM_JOB_NODELIST"] = "n2";
  EXPECT_EQ(ErrorOf(With(shell, {{"SLURM_NODEID", "0"}})), "no error");
}

TEST(Allocation, NamesTheVariableThatIsWrong) {
  EXPECT_NE(ErrorOf({}).find("SLURM_JOB_ID is not set, so this is no Slurm allocation"),
            std::string::npos);
  EXPECT_FALSE(InAllocation({{"SLURM_JOB_ID", ""}}));
  const std::vector<std::pair<Environment, std::string>> rows = {
      {{{"SLURM_JOB_ID", "4x"}}, "variable SLURM_JOB_ID is '4x'"},
      {{{"SLURM_JOB_ID", "0"}}, "a number of at least 1"},
      {{{"SLURM_RESTART_COUNT", "-1"}}, "SLURM_RESTART_COUNT"},
      {{{"SLURM_NODEID", "a"}}, "SLURM_NODEID"},
      {{{"SLURM_NODEID", "3"}, {"SLURMD_NODENAME", ""}}, "which are 3"},
      {{{"SLURMD_NODENAME", "n9"}}, "which is none of the step's nodes n[1-3]"},
      {{{"SLURM_STEP_NODELIST", "n[1-"}}, "variable SLURM_STEP_NODELIST: node list 'n[1-'"},
      {{{"SLURM_STEP_TASKS_PER_NODE", "1(y3)"}}, "not a list of counts"},
      {{{"SLURM_CPUS_ON_NODE", "99999999999"}}, "SLURM_CPUS_ON_NODE"},
  };
  for (const auto& [changes, words] : rows)
    EXPECT_NE(ErrorOf(With(Step(), changes)).find(words), std::string::npos)
        << ErrorOf(With(Step(), changes));
  Environment without = Step();
  without.erase("SLURM_STEP_NODELIST");
  without.erase("SLURM_JOB_NODELIST");
  EXPECT_NE(ErrorOf(without).find("SLURM_JOB_NODELIST is not set"), std::string::npos);
}

TEST(Environment, IsThisProcesssOwn) {
  ASSERT_EQ(::setenv("MUSTER_ALLOCATION_TEST", "a=b", 1), 0);
  EXPECT_EQ(CurrentEnvironment()["MUSTER_ALLOCATION_TEST"], "a=b");
  ::unsetenv("MUSTER_ALLOCATION_TEST");
}

}  // namespace
}  // namespace muster::slurm
