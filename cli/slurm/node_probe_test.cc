#include "cli/slurm/node_probe.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "cli/slurm/clock_listener.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

slurm::Allocation NodeOfThree(int index) {
  slurm::Allocation allocation;
  allocation.nodes = {"n1", "n2", "n3"};
  allocation.node_id = index;
  allocation.node_name = allocation.nodes[static_cast<std::size_t>(index)];
  return allocation;
}

// The probes of `nodes` nodes, as threads on loopback.
std::vector<slurm::NodeProbe> ProbeTogether(const std::string& dir, int nodes, Duration timeout) {
  std::vector<slurm::NodeProbe> probes(static_cast<std::size_t>(nodes));
  std::vector<std::thread> threads;
  for (int i = 0; i < nodes; ++i)
    threads.emplace_back([&, i] {
      probes[static_cast<std::size_t>(i)] =
          ProbeNode(NodeOfThree(i), {.dir = dir, .interface = "lo", .timeout = timeout});
    });
  for (std::thread& thread : threads) thread.join();
  return probes;
}

TEST(NodeProbe, NodesMeetReachEachOtherAndOneOfThemMakesWhatOnlyOneCan) {
  const TempDirForTest temp;
  const auto probes = ProbeTogether(temp.path(), 3, std::chrono::seconds(20));
  for (const Finding& finding : slurm::JudgeNodes(3, probes))
    EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.check << ": " << finding.what;
  for (const slurm::NodeProbe& probe : probes) {
    EXPECT_EQ(probe.clock_offset.size(), 2u);
    EXPECT_GT(probe.usable_cpus, 0);
    EXPECT_TRUE(probe.address.starts_with("127.0.0.1:")) << probe.address;
  }
}

TEST(NodeProbe, ANodeThatDoesNotComeIsNamed) {
  const TempDirForTest temp;
  const auto probes = ProbeTogether(temp.path(), 2, std::chrono::milliseconds(300));
  EXPECT_EQ(probes[0].unseen, (std::vector<std::string>{"n3"}));
  EXPECT_EQ(probes[1].unseen, (std::vector<std::string>{"n3"}));
  EXPECT_TRUE(probes[0].unreachable.empty()) << "only a node that was seen is probed";
}

TEST(NodeProbe, ADirectoryThatIsNotThereIsAnErrorOfTheSharedPath) {
  const auto probe = ProbeNode(NodeOfThree(0), {.dir = "/nowhere/at/all", .interface = "lo"});
  EXPECT_NE(probe.shared_error.find("/nowhere/at/all"), std::string::npos) << probe.shared_error;
}

TEST(ClockListener, SendsTheTimeUntilItIsClosed) {
  auto listener = ClockListener::Open("127.0.0.1");
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  const std::string address = (*listener)->address();
  const auto offset = AskClock(address, std::chrono::seconds(5));
  ASSERT_TRUE(offset.ok()) << offset.status().ToString();
  EXPECT_LE(std::llabs(*offset), 5000);
  listener->reset();
  EXPECT_FALSE(AskClock(address, std::chrono::seconds(5)).ok());
  EXPECT_EQ(ClockListener::Open("a-name").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster
