#include "coordinator/service/authorization.h"

#include <gtest/gtest.h>

#include "coordinator/service/token_bucket.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

TEST(Authorization, WhatTheTableDoesNotNameIsDeniedToAllRoles) {
  for (const Caller caller : {Caller::kNobody, Caller::kToken, Caller::kAdmin, Caller::kNode,
                              Caller::kScraper, Caller::kCoordinator}) {
    for (const char* method :
         {"", "/", "/muster.v1.Client/", "/muster.v1.Client/Submit ", "/muster.v1.Client/submit",
          "muster.v1.Client/Submit", "/muster.v1.Client/Submi", "/grpc.health.v1.Health/Check"})
      EXPECT_FALSE(MayCall(method, caller)) << method << " by " << CallerText(caller);
    for (const char* path :
         {"", "/metrics/", "/metric", "/config", "/../metrics", "//", "/jobs", "/assets", "/api",
          "/api/v1/", "/api/v1/events/", "/api/v1/log/x", "/api/v1/logs", "/api/v2/events"})
      EXPECT_FALSE(MayGet(path, caller)) << path << " by " << CallerText(caller);
  }
}

TEST(Authorization, WithoutACertificateOneIsRequestedAndAnotherRoleIsRefused) {
  const Status nobody = Authorize("/muster.v1.Client/Submit", Caller::kNobody);
  EXPECT_EQ(nobody.code(), StatusCode::kUnauthenticated);
  EXPECT_NE(nobody.message().find("--tls"), std::string::npos);
  const Status node = Authorize("/muster.v1.Client/Submit", Caller::kNode);
  EXPECT_EQ(node.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(node.message(), "a node's certificate may not call /muster.v1.Client/Submit");
  EXPECT_TRUE(Authorize("/muster.v1.Client/Submit", Caller::kAdmin).ok());
}

TEST(Authorization, MetricsAreForScrapersAndAdmins) {
  for (const char* path : {"/metrics", "/sd", "/healthz"}) {
    EXPECT_TRUE(AuthorizePage(path, Caller::kScraper).ok());
    EXPECT_TRUE(AuthorizePage(path, Caller::kAdmin).ok());
    EXPECT_EQ(AuthorizePage(path, Caller::kNode).code(), StatusCode::kPermissionDenied);
    EXPECT_EQ(AuthorizePage(path, Caller::kNobody).code(), StatusCode::kUnauthenticated);
  }
}

TEST(Authorization, ThePageIsEmptyForAllAndFilledForAdminsAndUsers) {
  for (const char* path : {"/", "/jobs/", "/jobs/a-job", "/assets/page.css", "/auth/sign-in"})
    for (const Caller caller : {Caller::kNobody, Caller::kNode, Caller::kScraper, Caller::kUser})
      EXPECT_TRUE(AuthorizePage(path, caller).ok()) << path << " by " << CallerText(caller);
  for (const char* path : {"/api/v1/events", "/api/v1/log"}) {
    EXPECT_TRUE(AuthorizePage(path, Caller::kAdmin).ok()) << path;
    EXPECT_TRUE(AuthorizePage(path, Caller::kUser).ok()) << path;
    for (const Caller caller :
         {Caller::kNobody, Caller::kNode, Caller::kScraper, Caller::kCoordinator})
      EXPECT_FALSE(AuthorizePage(path, caller).ok()) << path << " by " << CallerText(caller);
  }
}

TEST(TokenBucket, GivesSoManyAtOnceAndThenSoManyASecond) {
  TokenBucket bucket(3, 2);
  const TimePoint begin = TimePoint() + 1h;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bucket.Take(begin)) << i;
  EXPECT_FALSE(bucket.Take(begin));
  EXPECT_FALSE(bucket.Take(begin + 400ms));
  EXPECT_TRUE(bucket.Take(begin + 600ms));
  EXPECT_FALSE(bucket.Take(begin + 700ms));
  // After any pause, no more than at first.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bucket.Take(begin + 1h)) << i;
  EXPECT_FALSE(bucket.Take(begin + 1h));
}

}  // namespace
}  // namespace muster
