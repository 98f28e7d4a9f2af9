#include "common/net/ip_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::HasSubstr;

TEST(IpAddress, ReadsAndWritesBothFamilies) {
  EXPECT_EQ(IpAddress::Parse("10.0.0.1")->ToString(), "10.0.0.1");
  EXPECT_EQ(IpAddress::Parse("[fd00:0::1]")->ToString(), "fd00::1");
  EXPECT_TRUE(IpAddress::Parse("10.0.0.1")->is_v4());
  EXPECT_FALSE(IpAddress::Parse("::1")->is_v4());
}

TEST(IpAddress, RefusesWhatIsNoNumber) {
  for (const char* text : {"", "node-1", "10.0.0", "10.0.0.256", "10.0.0.1:7700", "fe80::1%eth0"}) {
    const auto address = IpAddress::Parse(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_THAT(address.status().message(), HasSubstr("no numeric address"));
  }
}

TEST(IpAddress, RecognizesWhatReachesNoOtherHost) {
  for (const char* text : {"127.0.0.1", "127.9.9.9", "::1"})
    EXPECT_TRUE(IpAddress::Parse(text)->is_loopback()) << text;
  for (const char* text : {"169.254.1.2", "fe80::1", "febf::1"})
    EXPECT_TRUE(IpAddress::Parse(text)->is_link_local()) << text;
  for (const char* text : {"10.0.0.1", "fec0::1", "169.253.0.1", "2001:db8::1"}) {
    EXPECT_FALSE(IpAddress::Parse(text)->is_loopback()) << text;
    EXPECT_FALSE(IpAddress::Parse(text)->is_link_local()) << text;
  }
  EXPECT_TRUE(IpAddress::Parse("0.0.0.0")->is_unspecified());
  EXPECT_TRUE(IpAddress::Parse("::")->is_unspecified());
  EXPECT_FALSE(IpAddress::Parse("::1")->is_unspecified());
}

TEST(IpPrefix, HoldsTheAddressesThatBeginLikeIt) {
  const auto prefix = IpPrefix::Parse("10.1.2.3/23");
  ASSERT_TRUE(prefix.ok()) << prefix.status().message();
  EXPECT_TRUE(prefix->Contains(*IpAddress::Parse("10.1.3.255")));
  EXPECT_FALSE(prefix->Contains(*IpAddress::Parse("10.1.4.0")));
  EXPECT_FALSE(prefix->Contains(*IpAddress::Parse("a01:203::")));
  EXPECT_TRUE(IpPrefix::Parse("::/0")->Contains(*IpAddress::Parse("fd00::1")));
}

TEST(IpPrefix, RefusesWhatIsNoNetwork) {
  for (const char* text : {"10.0.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8x", "eth0/8", "/8"})
    EXPECT_THAT(IpPrefix::Parse(text).status().message(), HasSubstr("is no network")) << text;
}

}  // namespace
}  // namespace muster
