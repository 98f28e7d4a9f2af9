#include "coordinator/control/master_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;

NodeRecord MakeNode(const char* name, const char* address, const char* host) {
  NodeRecord node;
  node.name = NodeName{name};
  node.address = address;
  node.host_id = host;
  return node;
}

TEST(MasterAddressTest, LoopbackServesNodesOfOneHost) {
  const NodeRecord a = MakeNode("a", "127.0.0.1", "h1");
  const NodeRecord b = MakeNode("b", "127.0.0.2", "h1");
  EXPECT_EQ(ChooseMasterAddress({&a, &b}).value(), "127.0.0.1");
}

TEST(MasterAddressTest, LoopbackIsNeverGivenToAnotherHost) {
  const NodeRecord a = MakeNode("a", "127.0.0.1", "h1");
  const NodeRecord b = MakeNode("b", "10.0.0.2", "h2");
  const auto address = ChooseMasterAddress({&a, &b});
  ASSERT_FALSE(address.ok());
  EXPECT_THAT(address.status().message(), HasSubstr("node a advertises the loopback address"));
  EXPECT_THAT(address.status().message(), HasSubstr("--address"));
  // The other way round rank 0 can be reached.
  EXPECT_EQ(ChooseMasterAddress({&b, &a}).value(), "10.0.0.2");
}

TEST(MasterAddressTest, LoopbackAloneIsFine) {
  const NodeRecord a = MakeNode("a", "::1", "h1");
  EXPECT_TRUE(ChooseMasterAddress({&a}).ok());
}

TEST(MasterAddressTest, AnAddressIsNeeded) {
  const NodeRecord a = MakeNode("a", "", "h1");
  EXPECT_FALSE(ChooseMasterAddress({&a}).ok());
}

TEST(MasterAddressTest, LoopbackAddresses) {
  for (const char* address : {"127.0.0.1", "127.9.9.9", "::1", "localhost"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address : {"10.127.0.1", "1270.0.0.1", "n1.example", "fe80::1"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

}  // namespace
}  // namespace muster
