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
  EXPECT_TRUE(CoordinatorAddresses::Parse("dnssrv+_muster._tcp.a.org,10.0.0.1:1").ok());
  EXPECT_THAT(CoordinatorAddresses::Parse("dnssrv+a.org").status().message(),
              HasSubstr("such as _muster._tcp.example.org"));
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

TEST(CoordinatorAddressesTest, ANameIsResolvedAnewWhenAllOfItsAddressesHaveFailed) {
  Result<std::vector<std::string>> answer = std::vector<std::string>{"b:1", "c:1"};
  int asked = 0;
  CoordinatorAddresses addresses({"dnssrv+_m._tcp.x", "a:1"}, [&](const std::string& name) {
    EXPECT_EQ(name, "_m._tcp.x");
    ++asked;
    return answer;
  });
  EXPECT_TRUE(addresses.HasOthers());
  EXPECT_TRUE(addresses.Resolve().ok());
  EXPECT_TRUE(addresses.Resolve().ok());
  EXPECT_EQ(asked, 1);
  EXPECT_THAT(addresses.all(), ElementsAre("a:1", "b:1", "c:1"));
  for (const char* address : {"a:1", "b:1"}) addresses.Failed(address, "");
  EXPECT_TRUE(addresses.Resolve().ok());
  EXPECT_EQ(asked, 1);
  addresses.Failed("c:1", "");
  answer = Unavailable("silent");
  EXPECT_TRUE(addresses.Resolve().ok()) << "what was known stays";
  EXPECT_EQ(addresses.Current(), "a:1");
  answer = std::vector<std::string>{"d:1"};
  EXPECT_TRUE(addresses.Resolve().ok());
  EXPECT_EQ(asked, 3);
  EXPECT_THAT(addresses.all(), ElementsAre("a:1", "d:1"));
}

TEST(CoordinatorAddressesTest, WithoutAnAddressAtAllTheNameServersWordsAreTheError) {
  Result<std::vector<std::string>> answer = NotFound("no such name");
  CoordinatorAddresses addresses({"dnssrv+_m._tcp.x"}, [&](const std::string&) { return answer; });
  EXPECT_EQ(FindCoordinator(addresses, "/none").status().message(), "no such name");
  answer = std::vector<std::string>{"a:1"};
  const auto found = FindCoordinator(addresses, "/none");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->grpc_tls, "a:1");
}

}  // namespace
}  // namespace muster
