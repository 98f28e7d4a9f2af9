#include "worker/fabric/transport_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "worker/fabric/nccl_filter.h"
#include "worker/fabric/testing/tree.h"

namespace muster::worker {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

using Environment = std::map<std::string, std::string>;

TransportReport Report(const std::string& tree, const Environment& nccl = {}) {
  FabricFacts facts = ReadFabricFacts(TreeForTest(tree).path());
  facts.nccl = nccl;
  return MakeTransportReport(facts);
}

std::vector<std::string> Problems(const TransportReport& report) {
  std::vector<std::string> texts;
  for (const TransportFinding& finding : report.findings)
    if (finding.is_problem) texts.push_back(finding.text);
  return texts;
}

TEST(FabricFacts, ANodeOfEightAdaptersIsReadInTheOrderOfItsDevices) {
  const FabricFacts facts = ReadFabricFacts(TreeForTest("infiniband_hdr").path());
  ASSERT_THAT(facts.rdma, SizeIs(8));
  EXPECT_EQ(facts.rdma[7].name, "mlx5_7");
  EXPECT_EQ(facts.rdma[7].pci_address, "0000:cc:00.0");
  EXPECT_EQ(facts.rdma[7].numa_node, 5);
  EXPECT_EQ(facts.rdma[0].vendor, "0x15b3");
  EXPECT_EQ(facts.rdma[0].ports.at(0).state, "ACTIVE");
  EXPECT_EQ(facts.rdma[0].ports[0].phys_state, "LinkUp");
  EXPECT_DOUBLE_EQ(facts.rdma[0].ports[0].gbps, 200);
  ASSERT_THAT(facts.gpus, SizeIs(8));
  EXPECT_EQ(facts.gpus[0], (GpuDevice{"0000:07:00.0", 3}));
  EXPECT_EQ(facts.gpus[7], (GpuDevice{"0000:bd:00.0", 5}));
  EXPECT_EQ(facts.nvswitches, 6);
  EXPECT_TRUE(facts.peermem);
  EXPECT_THAT(facts.nets, SizeIs(9)) << "loopback is left out";
}

TEST(FabricFacts, TheTableOfARocePortHasTypesAndWhatIsRouted) {
  const FabricFacts facts = ReadFabricFacts(TreeForTest("roce").path());
  const RdmaPort& port = facts.rdma.at(0).ports.at(0);
  EXPECT_EQ(port.net_device, "eth2");
  EXPECT_THAT(port.gids,
              ElementsAre(GidEntry{0, "IB/RoCE v1", false}, GidEntry{1, "RoCE v2", false},
                          GidEntry{2, "IB/RoCE v1", true}, GidEntry{3, "RoCE v2", true}));
}

TEST(FabricFacts, AHostWithNothingOfItHasNoFacts) {
  const TempDirForTest empty;
  const FabricFacts facts = ReadFabricFacts(empty.path());
  EXPECT_THAT(facts.rdma, IsEmpty());
  EXPECT_THAT(facts.nets, IsEmpty());
  EXPECT_EQ(MakeTransportReport(facts).between_nodes, "sockets: there is no RDMA adapter");
  EXPECT_EQ(MakeTransportReport(facts).within_node, "");
}

TEST(NcclVariables, AreThoseOfTheEnvironmentThatBeginSo) {
  const char* const environment[] = {"PATH=/bin", "NCCL_DEBUG=INFO", "NCCL_IB_HCA=", nullptr};
  EXPECT_EQ(NcclVariables(environment), (Environment{{"NCCL_DEBUG", "INFO"}, {"NCCL_IB_HCA", ""}}));
}

TEST(TransportReport, ASoundInfinibandNodeHasNothingToComplainOf) {
  const TransportReport report = Report("infiniband_hdr");
  EXPECT_THAT(report.Lines(),
              ElementsAre("between nodes: InfiniBand, 8 ports of 200 Gb/s (mlx5_0 to mlx5_7)",
                          "within the node: NVLink by 6 NVSwitches"));
  EXPECT_EQ(report.problems(), 0);
}

TEST(TransportReport, ARoceTableWithoutVersion2IsNamedWithItsInterface) {
  const TransportReport report = Report("roce");
  EXPECT_EQ(report.between_nodes, "RoCE, 2 ports of 100 Gb/s (mlx5_0 and mlx5_1)");
  EXPECT_THAT(Problems(report),
              ElementsAre("RoCE device mlx5_1 is up but its GID table has no RoCE v2 entry: give "
                          "eth3 an IP address (ip addr add), from which the driver makes one"));
  EXPECT_EQ(report.within_node, "PCIe, 2 GPUs");
}

TEST(TransportReport, AnEntryThatIsAskedForByNumberMustBeOfVersion2) {
  EXPECT_THAT(Problems(Report("roce", {{"NCCL_IB_GID_INDEX", "2"}})),
              Contains(AllOf(StartsWith("RoCE device mlx5_0: "), HasSubstr("IB/RoCE v1"))));
  EXPECT_THAT(Problems(Report("roce", {{"NCCL_IB_GID_INDEX", "3"}})),
              ElementsAre(StartsWith("RoCE device mlx5_1 has no entry 3 in its GID table")));
  EXPECT_THAT(Problems(Report("roce", {{"NCCL_IB_GID_INDEX", "-1"}})),
              ElementsAre(HasSubstr("mlx5_1 is up but its GID table has no RoCE v2 entry")));
}

TEST(TransportReport, LinkLocalEntriesReachNoHostBeyondTheSwitch) {
  const TreeForTest tree("roce");
  const std::string port = "sys/class/infiniband/mlx5_1/ports/1/";
  tree.Write(port + "gids/1", "fe80:0000:0000:0000:ba59:9fff:fe00:0002");
  tree.Write(port + "gid_attrs/types/1", "RoCE v2");
  const TransportReport report = MakeTransportReport(ReadFabricFacts(tree.path()));
  EXPECT_THAT(Problems(report), ElementsAre(HasSubstr("link-local addresses only")));
}

TEST(TransportReport, EfaNeedsItsPlugin) {
  const TreeForTest tree("efa");
  const TransportReport report = MakeTransportReport(ReadFabricFacts(tree.path()));
  EXPECT_EQ(report.between_nodes,
            "EFA, 4 ports of 100 Gb/s (rdmap16s27 to rdmap160s27), by "
            "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so");
  EXPECT_EQ(report.problems(), 0);
  tree.Remove("opt/amazon");
  const TransportReport without = MakeTransportReport(ReadFabricFacts(tree.path()));
  EXPECT_EQ(without.between_nodes, "sockets over ens32: NCCL has no plug-in for EFA");
  EXPECT_THAT(Problems(without), ElementsAre(HasSubstr("install aws-ofi-nccl")));
}

TEST(TransportReport, WithoutAdaptersItIsSocketsAndTheirRate) {
  const TransportReport report = Report("ethernet");
  EXPECT_EQ(report.between_nodes, "sockets over eno1np0 at 10 Gb/s: there is no RDMA adapter");
  EXPECT_EQ(report.within_node, "PCIe, 4 GPUs");
  EXPECT_EQ(report.problems(), 0) << "a slow network is no fault of the node";
  EXPECT_THAT(report.Lines(), Contains(StartsWith("note: sockets at 10 Gb/s")));
}

TEST(TransportReport, SocketsGoByTheInterfacesThatTheRanksGet) {
  FabricFacts facts = ReadFabricFacts(TreeForTest("infiniband_hdr").path());
  facts.nccl = {{"NCCL_IB_DISABLE", "1"}};
  facts.socket_interfaces = {"enp226s0"};
  EXPECT_EQ(MakeTransportReport(facts).between_nodes,
            "sockets over enp226s0 at 1 Gb/s: NCCL_IB_DISABLE is set");
  facts.nccl["NCCL_SOCKET_IFNAME"] = "=ib0";
  EXPECT_THAT(MakeTransportReport(facts).between_nodes, HasSubstr("over ib0 at 200 Gb/s"));
  facts.nccl["NCCL_SOCKET_IFNAME"] = "eth";
  EXPECT_THAT(Problems(MakeTransportReport(facts)),
              ElementsAre(HasSubstr("NCCL_SOCKET_IFNAME=eth names no interface that is up")));
}

TEST(TransportReport, EachPortThatIsDownReportsWhyAndWhatToDo) {
  const TransportReport report = Report("ports_down");
  EXPECT_EQ(report.between_nodes, "InfiniBand, 2 ports of 100 to 400 Gb/s (mlx5_0 and mlx5_3)");
  EXPECT_THAT(
      Problems(report),
      ElementsAre("mlx5_1 is DOWN (physical state Polling), and NCCL leaves it out: check its "
                  "cable, the transceiver and the switch port",
                  AllOf(StartsWith("mlx5_2 is INIT (physical state LinkUp)"),
                        HasSubstr("no subnet manager")),
                  AllOf(HasSubstr("mlx5_3 has 100 Gb/s only"), HasSubstr("NCCL_IB_HCA=^=mlx5_3"))));
}

TEST(TransportReport, TwoKindsOfNetworksMustNotBeMixedAndAContainerNeedsItsDevices) {
  const TransportReport report = Report("mixed");
  EXPECT_EQ(report.between_nodes,
            "InfiniBand, 1 port of 200 Gb/s (mlx5_0) and RoCE, 1 port of 100 Gb/s (mlx5_1)");
  EXPECT_THAT(Problems(report), Contains(AllOf(HasSubstr("takes them as one network"),
                                               HasSubstr("NCCL_IB_HCA==mlx5_0"))));
  EXPECT_THAT(Problems(report),
              Contains(AllOf(StartsWith("mlx5_2 is up"), HasSubstr("--device /dev/infiniband"))));
  const TransportReport named = Report("mixed", {{"NCCL_IB_HCA", "=mlx5_0"}});
  EXPECT_EQ(named.between_nodes, "InfiniBand, 1 port of 200 Gb/s (mlx5_0)");
  EXPECT_THAT(Problems(named), IsEmpty());
  EXPECT_THAT(named.Lines(), Contains("note: NCCL_IB_HCA==mlx5_0 leaves out 2 ports"));
}

TEST(TransportReport, AFilterThatLeavesNothingEndsInSockets) {
  const TransportReport report = Report("infiniband_hdr", {{"NCCL_IB_HCA", "mlx4"}});
  EXPECT_THAT(report.between_nodes, HasSubstr("no RDMA port can be used"));
  EXPECT_THAT(Problems(report), Contains(HasSubstr("leaves no active port")));
}

TEST(TransportReport, GpuMemoryNeedsAWayToTheAdapter) {
  const TreeForTest tree("infiniband_hdr");
  tree.Remove("sys/module/nvidia_peermem");
  EXPECT_THAT(Problems(MakeTransportReport(ReadFabricFacts(tree.path()))),
              ElementsAre(HasSubstr("modprobe nvidia_peermem")));
  tree.Write("proc/driver/nvidia/version",
             "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15");
  EXPECT_THAT(Problems(MakeTransportReport(ReadFabricFacts(tree.path()))), IsEmpty());
  EXPECT_THAT(Problems(Report("infiniband_hdr", {{"NCCL_NET_GDR_LEVEL", "LOC"}})),
              ElementsAre(HasSubstr("NCCL_NET_GDR_LEVEL=LOC")));
}

TEST(TransportReport, ALibraryAndTheLimitOfLockedMemoryAreNeeded) {
  const TreeForTest tree("infiniband_hdr");
  FabricFacts facts = ReadFabricFacts(tree.path());
  facts.locked_memory_bytes = 8 << 20;
  EXPECT_THAT(Problems(MakeTransportReport(facts)),
              ElementsAre(AllOf(StartsWith("only 8192 KiB of memory may be locked"),
                                HasSubstr("memlock"))));
  tree.Remove("usr");
  const TransportReport report = MakeTransportReport(ReadFabricFacts(tree.path()));
  EXPECT_THAT(report.between_nodes, StartsWith("sockets over "));
  EXPECT_THAT(Problems(report), ElementsAre(StartsWith("libibverbs.so.1 is not installed")));
}

TEST(TransportReport, WithinTheNodeLinksThatDoNotWorkAreNamed) {
  FabricFacts facts = ReadFabricFacts(TreeForTest("infiniband_hdr").path());
  facts.nvlink = {.gpus = 8, .active_links = 12};
  EXPECT_EQ(MakeTransportReport(facts).within_node, "NVLink, 12 links on each of 8 GPUs");
  facts.nvlink.clique = "0f8e/3";
  EXPECT_THAT(MakeTransportReport(facts).within_node, HasSubstr("NVLink domain 0f8e/3"));
  facts.nvlink = {.gpus = 8};
  const TransportReport broken = MakeTransportReport(facts);
  EXPECT_EQ(broken.within_node, "PCIe, 8 GPUs");
  EXPECT_THAT(Problems(broken), ElementsAre(HasSubstr("nvidia-fabricmanager")));
  facts.nccl = {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "0"}};
  EXPECT_THAT(Problems(MakeTransportReport(facts)),
              ElementsAre(HasSubstr("NCCL_P2P_DISABLE is set")));
}

TEST(TransportReport, ItsLinesAreBoundedWithProblemsFirst) {
  TransportReport report{.between_nodes = "sockets"};
  for (int i = 0; i < 40; ++i) report.findings.push_back({i == 39, std::string(500, 'x')});
  const auto lines = report.Lines();
  ASSERT_THAT(lines, SizeIs(kMaxTransportLines));
  EXPECT_THAT(lines[1], StartsWith("problem: "));
  EXPECT_THAT(lines, Each(SizeIs(testing::Le(kMaxTransportLineBytes))));
  EXPECT_EQ(lines.back(), "note: 10 more findings");
}

TEST(NcclFilter, TakesPrefixesNamesPortsAndWhatIsNotExcluded) {
  EXPECT_TRUE(NcclFilter("").Takes("mlx5_0"));
  EXPECT_TRUE(NcclFilter("mlx5").Takes("mlx5_0"));
  EXPECT_FALSE(NcclFilter("=mlx5").Takes("mlx5_0"));
  EXPECT_TRUE(NcclFilter("=mlx5_1,mlx5_0").Takes("mlx5_0"));
  EXPECT_FALSE(NcclFilter("^docker,lo").Takes("docker0"));
  EXPECT_TRUE(NcclFilter("^=docker0").Takes("docker01"));
  EXPECT_TRUE(NcclFilter("=mlx5_0:2").TakesPort("mlx5_0", 2));
  EXPECT_FALSE(NcclFilter("=mlx5_0:2").TakesPort("mlx5_0", 1));
}

}  // namespace
}  // namespace muster::worker
