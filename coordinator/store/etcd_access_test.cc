#include "coordinator/store/etcd_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;

TEST(EtcdAccessTest, ASchemeHoldsUntilTheNextOneAndThePortIsEtcds) {
  const auto members =
      ParseEtcdUrls("https://a:1,b,http://127.0.0.1:2/,localhost,https://[::1],[::2]:3");
  ASSERT_TRUE(members.ok()) << members.status().ToString();
  EXPECT_EQ(*members, (std::vector<EtcdAddress>{{"a:1", true},
                                                {"b:2379", true},
                                                {"127.0.0.1:2", false},
                                                {"localhost:2379", false},
                                                {"[::1]:2379", true},
                                                {"[::2]:3", true}}));
}

TEST(EtcdAccessTest, PlainTextIsRefusedOutsideOfLoopback) {
  const auto members = ParseEtcdUrls("http://10.0.0.1:2379");
  EXPECT_EQ(members.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(members.status().message(), HasSubstr("10.0.0.1:2379 is not on loopback"));
}

TEST(EtcdAccessTest, WhatIsNoAddressIsRefused) {
  for (const char* urls : {"", "a:1", "https://", "https://a/b", "https://a,,b", "ftp://a"})
    EXPECT_EQ(ParseEtcdUrls(urls).status().code(), StatusCode::kInvalidArgument) << urls;
}

TEST(EtcdAccessTest, TlsNeedsAllThreeFilesAndPlainTextNone) {
  EtcdAccess access{.members = {{"a:1", true}}, .ca = "ca", .certificate = "cert"};
  EXPECT_THAT(CheckEtcdAccess(access).message(), HasSubstr("--etcd-key"));
  access.key = "key";
  EXPECT_TRUE(CheckEtcdAccess(access).ok());
  access.members = {{"127.0.0.1:1", false}};
  EXPECT_THAT(CheckEtcdAccess(access).message(), HasSubstr("no effect"));
  EXPECT_THAT(CheckEtcdAccess({.members = access.members, .user = "muster"}).message(),
              HasSubstr("--etcd-password-file"));
}

}  // namespace
}  // namespace muster
