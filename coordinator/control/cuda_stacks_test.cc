#include "coordinator/control/cuda_stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;

const CudaStack kStack{"0.1.0-ab", "13.0", "13.0", "2.28.9"};

std::vector<NodeStack> Nodes() {
  return {{NodeName{"n1"}, kStack}, {NodeName{"n2"}, kStack}, {NodeName{"n3"}, kStack}};
}

void ExpectRefused(const std::vector<NodeStack>& nodes, const std::string& why) {
  const Status status = CheckCudaStacks(nodes);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr(why));
}

TEST(CudaStacks, ThatAreEqualComputeTogether) {
  EXPECT_TRUE(CheckCudaStacks(Nodes()).ok());
  EXPECT_TRUE(CheckCudaStacks({}).ok());
}

TEST(CudaStacks, OfDifferentNcclAreNamedByNode) {
  auto nodes = Nodes();
  nodes[1].stack.nccl = "2.27.5";
  ExpectRefused(nodes, "different releases of NCCL (n2: 2.27.5; n1, n3: 2.28.9)");
}

TEST(CudaStacks, OfDifferentPluginsAreNamedByNode) {
  auto nodes = Nodes();
  nodes[2].stack.plugin = "0.1.0-cd";
  ExpectRefused(nodes, "different CUDA plug-ins (n1, n2: 0.1.0-ab; n3: 0.1.0-cd)");
}

TEST(CudaStacks, MayHaveDriversThatDiffer) {
  auto nodes = Nodes();
  nodes[0].stack.driver = "13.2";
  nodes[1].stack.driver = "14.0";
  EXPECT_TRUE(CheckCudaStacks(nodes).ok());
  // One major number: an older driver still runs it.
  for (NodeStack& node : nodes) node.stack.runtime = "13.1";
  EXPECT_TRUE(CheckCudaStacks(nodes).ok());
}

TEST(CudaStacks, WithADriverTooOldForThePluginAreRefused) {
  auto nodes = Nodes();
  nodes[1].stack.driver = "12.8";
  ExpectRefused(nodes, "node n2 has a driver for CUDA 12.8, the plug-in needs one for CUDA 13.0");
}

TEST(CudaStacks, WithoutDriverOrNcclAreRefused) {
  auto nodes = Nodes();
  nodes[2].stack.driver.clear();
  ExpectRefused(nodes, "node n3 has no NVIDIA driver");
  nodes = Nodes();
  nodes[0].stack.nccl.clear();
  ExpectRefused(nodes, "node n1 cannot load NCCL");
}

}  // namespace
}  // namespace muster
