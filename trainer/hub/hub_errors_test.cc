#include "trainer/hub/hub_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Status Of(long code, const std::string& kind = "", bool with_token = false) {
  HttpClientResponse response{.code = code};
  if (!kind.empty()) response.headers["x-error-code"] = kind;
  return HubStatus(response, "org/name", "https://hub.example/org/name", with_token);
}

TEST(HubStatus, SaysHowToGetAccess) {
  EXPECT_THAT(
      Of(403, "GatedRepo").message(),
      AllOf(HasSubstr("gated"), HasSubstr("https://hub.example/org/name"), HasSubstr("HF_TOKEN")));
  EXPECT_THAT(Of(401, "GatedRepo", true).message(), HasSubstr("the token has no access"));
  EXPECT_THAT(Of(401).message(), HasSubstr("private, or there is no such model"));
  EXPECT_THAT(Of(404, "RevisionNotFound").message(), HasSubstr("no such revision"));
  EXPECT_EQ(Of(404, "EntryNotFound").code(), StatusCode::kNotFound);
}

TEST(HubStatus, TellsWhatPassesFromWhatStays) {
  for (const long code : {408L, 429L, 500L, 502L, 503L, 504L}) {
    EXPECT_EQ(Of(code).code(), StatusCode::kUnavailable) << code;
  }
  for (const long code : {400L, 401L, 403L, 404L, 410L, 501L}) {
    EXPECT_NE(Of(code).code(), StatusCode::kUnavailable) << code;
    EXPECT_FALSE(Of(code).ok());
  }
  EXPECT_TRUE(Of(206).ok());
}

TEST(RetryPause, DoublesUpToABound) {
  using std::chrono::milliseconds;
  EXPECT_EQ(RetryPause(1, ""), milliseconds(500));
  EXPECT_EQ(RetryPause(2, ""), milliseconds(1000));
  EXPECT_EQ(RetryPause(6, ""), milliseconds(16'000));
  EXPECT_EQ(RetryPause(1000, ""), milliseconds(16'000));
}

TEST(RetryPause, IsWhatTheHubAsksFor) {
  EXPECT_EQ(RetryPause(1, "7"), std::chrono::seconds(7));
  EXPECT_EQ(RetryPause(1, "99999"), std::chrono::seconds(300));
  EXPECT_EQ(RetryPause(1, "Wed, 21 Oct 2026 07:28:00 GMT"), std::chrono::milliseconds(500));
}

}  // namespace
}  // namespace muster
