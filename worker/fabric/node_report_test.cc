#include "worker/fabric/node_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/fabric/testing/tree.h"

namespace muster::worker {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(LookAtNode, ReportsTheAddressTheTransportsAndTheGpus) {
  const TreeForTest tree("ethernet");
  tree.Write("dev/nvidia0", "-");
  const char* const environment[] = {"CUDA_VISIBLE_DEVICES=0,9", nullptr};
  const NodeReport report =
      LookAtNode({.address = {"10.0.0.5", {"eno1np0"}, "10.0.0.5 on eno1np0: because"},
                  .node = "n1",
                  .nvml_library = MUSTER_TEST_NVML,
                  .environment = environment,
                  .root = tree.path()})
          .value();
  ASSERT_GE(report.lines.size(), 4u);
  EXPECT_EQ(report.lines[0], "address: 10.0.0.5 on eno1np0: because");
  EXPECT_THAT(report.lines[1], StartsWith("between nodes: sockets over eno1np0"));
  EXPECT_THAT(report.lines[2], StartsWith("within the node: NVLink, 12 links on each of 2 GPUs"));
  EXPECT_THAT(report.lines, Contains(HasSubstr("problem: CUDA_VISIBLE_DEVICES names 9")));
  EXPECT_EQ(report.lines[3],
            "GPUs: 1 of Test GPU, 8 GB; 1 of an unknown kind, no job gets it: this node shows no "
            "such GPU");
  ASSERT_EQ(report.devices.size(), 2u);
  EXPECT_EQ(report.devices[0].device.id, "GPU-00000000-aaaa");
  EXPECT_EQ(report.devices[0].device.numa_node, 0);
  EXPECT_EQ(report.devices[1].device.id, "n1-gpu9");
  EXPECT_EQ(report.devices[1].device.numa_node, -1);
}

TEST(LookAtNode, FakeGpusTakeThePlaceOfTheRealOnesAndAreCalledFake) {
  const TreeForTest tree("ethernet");
  tree.Write("dev/nvidia0", "-");
  const NodeReport report =
      LookAtNode({.nvml_library = MUSTER_TEST_NVML,
                  .root = tree.path(),
                  .gpu_shares = 2,
                  .fake_gpus = {{.device = {.id = "FAKE-n1-0", .kind = "H100", .fake = true}}}})
          .value();
  EXPECT_THAT(report.lines[2], "GPUs: 2 of H100, fake, shared");
  ASSERT_EQ(report.devices.size(), 2u);
  EXPECT_EQ(report.devices[1].device.id, "FAKE-n1-0#2");
}

TEST(ReadFabricFacts, ADeviceWithoutAStateIsUpWhileItHasACarrier) {
  const TreeForTest tree("ethernet");
  for (const char* name : {"wg0", "tun0"}) {
    tree.Write("sys/class/net/" + std::string(name) + "/operstate", "unknown");
    tree.Write("sys/class/net/" + std::string(name) + "/carrier", name[0] == 'w' ? "1" : "0");
  }
  std::map<std::string, bool> up;
  for (const NetDevice& net : ReadFabricFacts(tree.path()).nets) up[net.name] = net.up;
  EXPECT_TRUE(up.at("wg0"));
  EXPECT_FALSE(up.at("tun0"));
}

TEST(LookAtNode, TheEnvironmentWinsOverNcclsFile) {
  const TreeForTest tree("infiniband_hdr");
  tree.Write("etc/nccl.conf", "# site\nNCCL_IB_DISABLE=1\nNCCL_SOCKET_IFNAME==enp226s0");
  const NodeReport by_file = LookAtNode({.root = tree.path()}).value();
  EXPECT_EQ(by_file.lines[1],
            "between nodes: sockets over enp226s0 at 1 Gb/s: NCCL_IB_DISABLE is set");
  const char* const environment[] = {"NCCL_IB_DISABLE=0", nullptr};
  const NodeReport report = LookAtNode({.environment = environment, .root = tree.path()}).value();
  EXPECT_THAT(report.lines[1], StartsWith("between nodes: InfiniBand, 8 ports"));
}

}  // namespace
}  // namespace muster::worker
