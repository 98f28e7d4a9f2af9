#include "common/process/network_namespace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kHeadings[] =
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
constexpr char kOnLink[] = "muster\t00004D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
constexpr char kDefault[] = "eth0\t00000000\t0111A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
constexpr char kIpv6OnLink[] =
    "fe800000000000000000000000000000 40 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 00000100 00000001 00000000 00000001   muster\n"
    "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";
constexpr char kIpv6Default[] =
    "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
    "fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth0\n";

TEST(NetworkNamespace, NamesDeriveFromTheDirectory) {
  const std::string name = ClusterNamespace("/tmp/a", "node-1");
  EXPECT_EQ(name, ClusterNamespace("/tmp/a", "node-1"));
  EXPECT_THAT(name, StartsWith(ClusterNamespacePrefix("/tmp/a")));
  EXPECT_NE(ClusterNamespacePrefix("/tmp/a"), ClusterNamespacePrefix("/tmp/b"));
  EXPECT_EQ(ClusterNamespacePrefix("/tmp/a").size(),
            std::string("muster-0123456789abcdef-").size());
}

TEST(NetworkNamespace, RoutesOnTheLinkLeadNowhere) {
  EXPECT_FALSE(HasGatewayRoute(std::string(kHeadings) + kOnLink, kIpv6OnLink));
  EXPECT_FALSE(HasGatewayRoute(kHeadings, ""));
}

TEST(NetworkNamespace, AGatewayIsFoundInEitherTable) {
  EXPECT_TRUE(HasGatewayRoute(std::string(kHeadings) + kOnLink + kDefault, ""));
  EXPECT_TRUE(HasGatewayRoute(kHeadings, std::string(kIpv6OnLink) + kIpv6Default));
}

TEST(NetworkNamespace, WhatIsNoRouteCountsAsAWayOut) {
  EXPECT_TRUE(HasGatewayRoute(std::string(kHeadings) + "eth0 00000000\n", ""));
  EXPECT_TRUE(HasGatewayRoute(std::string(kHeadings) + "eth0 0 0 flags\n", ""));
}

TEST(NetworkNamespace, AProcessElsewhereIsNotInAPrivateNetwork) {
  const Status status = CheckPrivateNetwork("/no/such/cluster");
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("muster up --netns"));
}

TEST(NetworkNamespace, ANamespaceThatDoesNotExistCannotBeEntered) {
  EXPECT_EQ(NamespaceScope::Enter("muster-none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster
