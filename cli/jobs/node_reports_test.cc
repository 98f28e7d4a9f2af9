#include "cli/jobs/node_reports.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

void Add(v1::ListNodesResponse* nodes, const std::string& name, const std::string& address,
         const std::vector<std::string>& report) {
  v1::Node* node = nodes->add_nodes();
  node->set_name(name);
  node->set_address(address);
  for (const std::string& line : report) node->add_report(line);
}

TEST(NodeReports, EqualLinesArePrintedOnceWithTheirNodesAndProblemsFirst) {
  v1::ListNodesResponse nodes;
  const std::string down = "problem: InfiniBand port 1 of mlx5_0 is down";
  const std::string hca = "problem: NCCL_IB_HCA names mlx5_9, which is not here";
  for (int i = 1; i <= 500; ++i) {
    const std::string number = std::to_string(i);
    std::vector<std::string> report = {
        "address: 10.0." + std::to_string(i / 100) + "." + std::to_string(i % 100 + 1) +
            " on eth2: the interface of the default route",
        i == 7 ? "between nodes: sockets" : "between nodes: InfiniBand, 8 ports of 400 Gb/s"};
    if (i == 7) report.push_back(hca);
    if (i == 7 || i == 20 || i == 21) report.push_back(down);
    Add(&nodes, "n" + std::string(3 - number.size(), '0') + number,
        report[0].substr(9, report[0].find(" on") - 9), report);
  }
  EXPECT_EQ(NodeReportsText(nodes), down + "\n  3 nodes: n[007,020-021]\n" + hca +
                                        "\n  n007\n"
                                        "address: ADDRESS on eth2: the interface of the default "
                                        "route\n  500 nodes: n[001-500]\n"
                                        "between nodes: InfiniBand, 8 ports of 400 Gb/s\n"
                                        "  499 nodes: n[001-006,008-500]\n"
                                        "between nodes: sockets\n  n007\n");
}

TEST(NodeReports, ALineOfOneNodeKeepsItsAddress) {
  v1::ListNodesResponse nodes;
  Add(&nodes, "a", "10.0.0.1", {"address: 10.0.0.1, as --address says"});
  Add(&nodes, "b", "fd00::2", {"address: fd00::2: the interface of the default route"});
  EXPECT_EQ(NodeReportsText(nodes),
            "address: 10.0.0.1, as --address says\n  a\n"
            "address: fd00::2: the interface of the default route\n  b\n");
}

TEST(NodeReports, AnAddressIsNotLookedForWithinALongerOne) {
  v1::ListNodesResponse nodes;
  Add(&nodes, "a", "10.0.0.1", {"note: gateway 10.0.0.12 of 10.0.0.1."});
  Add(&nodes, "b", "10.0.0.2", {"note: gateway 10.0.0.12 of 10.0.0.2."});
  EXPECT_EQ(NodeReportsText(nodes), "note: gateway 10.0.0.12 of ADDRESS.\n  2 nodes: a,b\n");
}

TEST(NodeReports, NameNodesWithoutAReportAndCannotCommandATerminal) {
  v1::ListNodesResponse nodes;
  Add(&nodes, "n1", "127.0.0.1", {});
  Add(&nodes, "n2", "127.0.0.1", {"between nodes: sockets\x1b[2J"});
  const std::string text = NodeReportsText(nodes);
  EXPECT_NE(text.find("networks and devices are unknown\n  n1\n"), text.npos) << text;
  EXPECT_EQ(text.find('\x1b'), text.npos);
  EXPECT_EQ(NodeReportsText({}), "");
}

}  // namespace
}  // namespace muster
