#include "worker/fabric/node_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(ResolveNodeAddress, ACoordinatorOnThisHostMeansAClusterOfThisHost) {
  for (const char* coordinator : {"127.0.0.1:7700", "unix:/run/x", "localhost:7700", ""}) {
    const auto node = ResolveNodeAddress({.coordinator = coordinator});
    ASSERT_TRUE(node.ok()) << node.status().message();
    EXPECT_EQ(node->address, "127.0.0.1");
    EXPECT_THAT(node->interfaces, IsEmpty());
    EXPECT_THAT(node->why, HasSubstr("the coordinator is on this host"));
  }
}

TEST(ResolveNodeAddress, OthersElsewhereNeedAWayOutOfTheHost) {
  const auto node = ResolveNodeAddress({.others_are_remote = true});
  ASSERT_TRUE(node.ok()) << node.status().message();
  EXPECT_THAT(node->why, testing::Not(HasSubstr("neither --address nor --interface")));
}

TEST(ResolveNodeAddress, AGivenAddressIsKeptAndReportedIfItCannotBeBound) {
  const auto loopback = ResolveNodeAddress({.address = "127.0.0.1"});
  EXPECT_EQ(loopback->address, "127.0.0.1");
  EXPECT_THAT(loopback->interfaces, IsEmpty());
  const auto elsewhere = ResolveNodeAddress({.address = "203.0.113.77"});
  EXPECT_EQ(elsewhere->address, "203.0.113.77");
  EXPECT_THAT(elsewhere->why, HasSubstr("no interface of this node has"));
}

TEST(ResolveNodeAddress, AnInterfaceThatIsNamedGivesTheAddress) {
  const auto node = ResolveNodeAddress({.interface = "lo", .coordinator = "127.0.0.1:7700"});
  ASSERT_TRUE(node.ok()) << node.status().message();
  EXPECT_EQ(node->address, "127.0.0.1");
  EXPECT_THAT(node->why, StartsWith("127.0.0.1 on lo: "));
  EXPECT_THAT(node->interfaces, IsEmpty()) << "collectives of one host need none";
}

TEST(ResolveNodeAddress, AddressAndInterfaceMustAgree) {
  EXPECT_TRUE(ResolveNodeAddress({.address = "127.0.0.1", .interface = "lo"}).ok());
  const auto node = ResolveNodeAddress({.address = "203.0.113.77", .interface = "lo"});
  EXPECT_EQ(node.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(node.status().message(), HasSubstr("is on no interface of this node"));
  EXPECT_EQ(ResolveNodeAddress({.interface = "no-such0"}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ResolveNodeAddress({.interface = "eth0:1"}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster::worker
