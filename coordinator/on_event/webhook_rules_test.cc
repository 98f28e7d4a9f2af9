#include "coordinator/on_event/webhook_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::HasSubstr;

WebhookRules Rules(const std::string& text) {
  auto rules = WebhookRules::Parse(text);
  EXPECT_TRUE(rules.ok()) << rules.status().message();
  return *rules;
}
StatusCode UrlBy(const std::string& rules, const std::string& url) {
  return Rules(rules).CheckUrl(url).code();
}
StatusCode AddressBy(const std::string& rules, const std::string& address) {
  return Rules(rules).CheckAddress(*IpAddress::Parse(address)).code();
}

TEST(WebhookRulesTest, WithoutHostsNothingIsPostedAndTheMessageNamesWhatToDo) {
  const Status status = WebhookRules().CheckUrl("https://hooks.example/x");
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("--webhook-hosts hooks.example"));
  EXPECT_THAT(status.message(), HasSubstr("muster events"));
  EXPECT_EQ(UrlBy("", "https://hooks.example/x"), StatusCode::kFailedPrecondition);
  // A network alone names no host.
  EXPECT_EQ(UrlBy("10.0.0.0/8", "http://10.0.0.1/"), StatusCode::kFailedPrecondition);
}

TEST(WebhookRulesTest, AHostIsAllowedByItsNameAndPort) {
  const std::string rules = "hooks.example,Other.example:8443,[fd00::1]:80";
  for (const char* good :
       {"https://hooks.example/x", "http://HOOKS.example", "https://hooks.example:443/",
        "https://other.example:8443/", "http://[fd00::1]/"})
    EXPECT_EQ(UrlBy(rules, good), StatusCode::kOk) << good;
  for (const char* bad :
       {"https://hooks.example:8443/", "http://hooks.example:443/", "https://other.example/",
        "https://a.hooks.example/", "https://hooks.example.evil/", "https://ahooks.example/",
        "http://[fd00::2]/", "https://hooks.example./"})
    EXPECT_EQ(UrlBy(rules, bad), StatusCode::kPermissionDenied) << bad;
  EXPECT_EQ(UrlBy(rules, "https://hooks.example@evil/"), StatusCode::kInvalidArgument);
}

TEST(WebhookRulesTest, WhatIsNoListIsRefusedByItsEntry) {
  for (const char* bad :
       {"a b", "host:0", "http://host", "host,", "a,,b", "10.0.0.0/33", "*.example"}) {
    const auto rules = WebhookRules::Parse(bad);
    EXPECT_FALSE(rules.ok()) << bad;
  }
  EXPECT_THAT(WebhookRules::Parse("good,bad host").status().message(), HasSubstr("'bad host'"));
}

TEST(WebhookRulesTest, ANameMayNotLeadIntoTheCoordinatorsOwnNetwork) {
  for (const char* special : {"127.0.0.1",
                              "127.8.9.1",
                              "0.0.0.0",
                              "10.1.2.3",
                              "172.31.0.1",
                              "192.168.1.1",
                              "169.254.169.254",
                              "100.64.0.1",
                              "224.0.0.1",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "fe80::1",
                              "fd00::1",
                              "ff02::1",
                              "::ffff:127.0.0.1",
                              "::ffff:10.0.0.1",
                              "64:ff9b::a00:1",
                              "2002:7f00:1::",
                              "::127.0.0.1"})
    EXPECT_EQ(AddressBy("hooks.example", special), StatusCode::kPermissionDenied) << special;
  for (const char* ordinary : {"1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1",
                               "::ffff:1.1.1.1", "64:ff9b::101:101"})
    EXPECT_EQ(AddressBy("hooks.example", ordinary), StatusCode::kOk) << ordinary;
}

TEST(WebhookRulesTest, ButMayIfTheOperatorAllowsIt) {
  EXPECT_EQ(AddressBy("hooks.example,10.0.0.0/8", "10.1.2.3"), StatusCode::kOk);
  EXPECT_EQ(AddressBy("hooks.example,10.0.0.0/8", "::ffff:10.1.2.3"), StatusCode::kOk);
  EXPECT_EQ(AddressBy("hooks.example,10.0.0.0/8", "127.0.0.1"), StatusCode::kPermissionDenied);
  EXPECT_EQ(AddressBy("10.0.0.5:8080", "10.0.0.5"), StatusCode::kOk);
  EXPECT_EQ(AddressBy("10.0.0.5:8080", "10.0.0.6"), StatusCode::kPermissionDenied);
  EXPECT_EQ(AddressBy("[fd00::1]", "fd00::1"), StatusCode::kOk);
}

}  // namespace
}  // namespace muster
