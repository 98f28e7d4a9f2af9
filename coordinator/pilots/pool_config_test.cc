#include "coordinator/pilots/pool_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Refusal(const std::string& yaml) {
  const auto config = ParsePoolConfig(yaml, "pilots.yaml");
  return config.ok() ? "taken" : config.status().message();
}

TEST(PoolConfigTest, EveryKeyIsRead) {
  const auto config = ParsePoolConfig(R"(
min_nodes: 1
max_nodes: 16
spares: 2
nodes_per_pilot: 4
idle_timeout: 5m
time_limit: 4h
stop_lead: 3m
start_timeout: 2m
orphan_after: 20m
term_grace: 50s
max_pending: 3
submits_per_minute: 6
partition: gpu
options: [--account=lab, --gpus-per-node=8]
node: {gpus: 8, gpu_kind: H100, gpu_memory: 80GB, cpus: 64, memory: 1TB, labels: {pool: a}}
setup: [module load cuda]
directory: /shared/pilots
coordinator: 10.0.0.1:7070
worker: /opt/muster/bin/muster-worker
slots: 8
interface: ib0
worker_arguments: [--failure-domain=rack-1]
)",
                                      "pilots.yaml");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->max_nodes, 16);
  EXPECT_EQ(config->nodes_per_pilot, 4);
  EXPECT_EQ(config->idle_timeout_seconds, 300);
  EXPECT_EQ(config->time_limit_seconds, 4 * 3600);
  EXPECT_EQ(config->stop_lead_seconds, 180);
  EXPECT_EQ(config->orphan_seconds, 1200);
  EXPECT_THAT(config->options, ElementsAre("--account=lab", "--gpus-per-node=8"));
  ASSERT_TRUE(config->node.has_value());
  ASSERT_EQ(config->node->devices.size(), 8u);
  EXPECT_EQ(config->node->devices[7],
            (Device{.id = "7", .kind = "H100", .memory_bytes = 80'000'000'000}));
  EXPECT_EQ(config->node->cpus, 64);
  EXPECT_EQ(config->node->memory_bytes, 1'000'000'000'000u);
  EXPECT_EQ(config->node->labels.at("pool"), "a");
  EXPECT_THAT(config->setup, ElementsAre("module load cuda"));
  EXPECT_EQ(config->interface, "ib0");
}

TEST(PoolConfigTest, AnAddressByWhichANodeWouldCallItselfIsRefused) {
  for (const char* address : {"0.0.0.0:7070", "[::]:7070", "127.0.0.1:7070", "[::1]:7070",
                              "127.5.0.1:7070", "localhost:7070", "login1:7070", "10.0.0.1"}) {
    const Status status = CheckDialBack(address);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(status.message(), HasSubstr("give IP:PORT as the nodes reach")) << address;
  }
  for (const char* address : {"10.0.0.1:7070", "[fd00::1]:7070"})
    EXPECT_TRUE(CheckDialBack(address).ok()) << address;
  EXPECT_THAT(Refusal("max_nodes: 2\ncoordinator: 0.0.0.0:7070\n"),
              HasSubstr("pilots.yaml:2: coordinator"));
}

TEST(PoolConfigTest, ABadFileIsRefusedByLineAndKey) {
  EXPECT_THAT(Refusal("max_nodes: 2\nmin_node: 1\n"), HasSubstr("pilots.yaml:2: min_node"));
  EXPECT_THAT(Refusal("max_nodes: many\n"), HasSubstr("pilots.yaml:1: max_nodes"));
  EXPECT_THAT(Refusal("spares: 1\n"), HasSubstr("max_nodes"));
  EXPECT_THAT(Refusal("max_nodes: 2\nmin_nodes: 3\n"), HasSubstr("pilots.yaml:2: min_nodes"));
  EXPECT_THAT(Refusal("max_nodes: 2\nnodes_per_pilot: 3\n"), HasSubstr("nodes_per_pilot"));
  EXPECT_THAT(Refusal("max_nodes: 2\ntime_limit: 5m\nstop_lead: 2m\n"), HasSubstr("stop_lead"));
  EXPECT_THAT(Refusal("max_nodes: 2\ndirectory: pilots\n"), HasSubstr("absolute"));
  EXPECT_THAT(Refusal("max_nodes: 2\noptions: [--nodes=3]\n"), HasSubstr("--nodes is the pool's"));
  EXPECT_THAT(Refusal("max_nodes: 2\noptions: [--signal=USR2@60]\n"),
              HasSubstr("--signal is the pool's"));
  EXPECT_THAT(Refusal("max_nodes: 2\noptions: [\"--x=a\\tb\\nc\"]\n"), HasSubstr("options"));
  EXPECT_THAT(Refusal("- 1\n"), HasSubstr("expected one map"));
  EXPECT_THAT(Refusal("max_nodes: [\n"), HasSubstr("no valid YAML"));
  EXPECT_EQ(Refusal("max_nodes: 2\n"), "taken");
}

}  // namespace
}  // namespace muster
