#include "common/rpc/coordinator_addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CoordinatorAddressesTest, AListIsReadAndEachAddressKeptOnce) {
  const auto list = CoordinatorAddresses::Parse("10.0.0.1:7070,[::1]:7070,10.0.0.1:7070");
  ASSERT_TRUE(list.ok()) << list.status().ToString();
  EXPECT_THAT(*list, ElementsAre("10.0.0.1:7070", "[::1]:7070"));
  for (const char* wrong : {"10.0.0.1", "a:1", ",10.0.0.1:1", "10.0.0.1:1, 10.0.0.2:1"}) {
    const auto refused = CoordinatorAddresses::Parse(wrong);
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(refused.status().message(), HasSubstr("is not IP:PORT")) << wrong;
  }
}

TEST(CoordinatorAddressesTest, AfterOneThatDoesNotAnswerComesTheNext) {
  CoordinatorAddresses addresses({"a:1", "b:1", "c:1"});
  EXPECT_EQ(addresses.Current(), "a:1");
  addresses.Failed("a:1", "");
  EXPECT_EQ(addresses.Current(), "b:1");
  addresses.Failed("a:1", "");
  EXPECT_EQ(addresses.Current(), "b:1") << "an old report counts once";
  addresses.Failed("b:1", "");
  addresses.Failed("c:1", "");
  EXPECT_EQ(addresses.Current(), "a:1");
}

TEST(CoordinatorAddressesTest, TheLeaderThatAStandbyNamesIsNextAndForgottenWhenItFails) {
  CoordinatorAddresses addresses({"a:1", "b:1"});
  addresses.Failed("a:1", "d:1");
  EXPECT_EQ(addresses.Current(), "d:1") << "it need not be in the list";
  addresses.Failed("d:1", "");
  EXPECT_EQ(addresses.Current(), "b:1") << "the one that named it is not asked again at once";
  addresses.Failed("b:1", "a:1");
  addresses.Failed("a:1", "b:1");
  EXPECT_EQ(addresses.Current(), "b:1") << "the leader has changed again";
}

TEST(CoordinatorAddressesTest, WithoutAListOnlyANamedLeaderHasAnAddress) {
  CoordinatorAddresses addresses({});
  EXPECT_EQ(addresses.Current(), "");
  addresses.Failed("127.0.0.1:1", "b:1");
  EXPECT_EQ(addresses.Current(), "b:1");
  addresses.Failed("b:1", "");
  EXPECT_EQ(addresses.Current(), "");
}

}  // namespace
}  // namespace muster
