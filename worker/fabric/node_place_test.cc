#include "worker/fabric/node_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Labels, AreKeysWithValues) {
  const auto labels = ParseLabels({"pool=a", "example.org/tier=", "zone=eu-1:b"});
  ASSERT_TRUE(labels.ok()) << labels.status().message();
  EXPECT_EQ(*labels, (std::map<std::string, std::string>{
                         {"pool", "a"}, {"example.org/tier", ""}, {"zone", "eu-1:b"}}));
  for (const std::string text : {"pool", "=a", "-a=b", "a b=c", ""})
    EXPECT_THAT(ParseLabels({text}).status().message(),
                StartsWith("label '" + text + "': expected KEY=VALUE"));
  for (const std::string& text : {std::string("a=b c"), std::string("a=b=c"),
                                  std::string("a=\xc3\xa4"), "a=" + std::string(256, 'x')})
    EXPECT_THAT(ParseLabels({text}).status().message(), HasSubstr("a value is at most 255"));
  EXPECT_EQ(ParseLabels({"a=1", "a=2"}).status().message(), "label a is given twice");
}

TEST(Topology, IsAnySubsetOfItsLevels) {
  EXPECT_EQ(ParseTopology("block=b,rack=r,switch=s").value(), (TopologyPath{"b", "r", "s"}));
  EXPECT_EQ(ParseTopology("rack=r7").value(), (TopologyPath{.rack = "r7"}));
  for (const std::string text : {"", "rack", "rack=", "row=1", "rack=a,,switch=b"})
    EXPECT_THAT(ParseTopology(text).status().message(),
                StartsWith("topology '" + text + "': expected block=B"));
  EXPECT_THAT(ParseTopology("rack=a,rack=b").status().message(), HasSubstr("rack is given twice"));
  EXPECT_THAT(ParseTopology("rack=a b").status().message(), HasSubstr("a name is at most"));
}

TEST(TopologyFile, TheLineOfTheNodeCounts) {
  const std::string text = "# site\nn1 block=b1,rack=r1\n\nn2 rack=r2 # behind the door\n";
  EXPECT_EQ(TopologyInFile(text, "t", "n1").value(), (TopologyPath{.block = "b1", .rack = "r1"}));
  EXPECT_EQ(TopologyInFile(text, "t", "n2").value(), (TopologyPath{.rack = "r2"}));
  const Status missing = TopologyInFile(text, "/etc/topology", "n3").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), StartsWith("/etc/topology: has no line for node n3"));
}

TEST(TopologyFile, ALineThatIsWrongIsNamed) {
  EXPECT_THAT(TopologyInFile("n1 rack=r1\nn2 row=1\n", "t", "n1").status().message(),
              StartsWith("t:2: topology 'row=1'"));
  EXPECT_THAT(TopologyInFile("n1\n", "t", "n1").status().message(), StartsWith("t:1: expected"));
  EXPECT_THAT(TopologyInFile("n1 rack=a b\n", "t", "n1").status().message(),
              StartsWith("t:1: expected"));
  EXPECT_EQ(TopologyInFile("n1 rack=a\nn1 rack=b\n", "t", "n1").status().message(),
            "t:2: node n1 is there twice");
}

TEST(TopologyOfSlurm, SwitchesAreCountedFromTheNodeUp) {
  EXPECT_EQ(TopologyOfSlurm("s0.s2.n7", "switch.switch.node"),
            (TopologyPath{.rack = "s0", .switch_name = "s2"}));
  EXPECT_EQ(TopologyOfSlurm("top.core.s0.s2.n7", "switch.switch.switch.switch.node"),
            (TopologyPath{"core", "s0", "s2"}));
  EXPECT_EQ(TopologyOfSlurm("b1.n7", "block.node"), (TopologyPath{.block = "b1"}));
  EXPECT_EQ(TopologyOfSlurm("b1.s2.n7", "block.switch.node"),
            (TopologyPath{.block = "b1", .switch_name = "s2"}));
  for (const char* pattern : {"", "node", "switch.switch.switch.node", "switch.switch"})
    EXPECT_EQ(TopologyOfSlurm("s0.s2.n7", pattern), TopologyPath{}) << pattern;
  EXPECT_EQ(TopologyOfSlurm("", ""), TopologyPath{});
}

}  // namespace
}  // namespace muster::worker
