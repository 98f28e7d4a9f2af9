#include "common/http/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <thread>

#include "common/http/testing/http_sink.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

// Answers in turn, and what it was asked.
class ScriptedClient : public HttpClient {
 public:
  explicit ScriptedClient(std::deque<HttpClientResponse> answers) : answers_(std::move(answers)) {}
  Result<HttpClientResponse> Send(const HttpClientRequest& request, const HttpSink&) override {
    asked.push_back(request);
    HttpClientResponse answer = answers_.front();
    if (answers_.size() > 1) answers_.pop_front();
    return answer;
  }
  std::vector<HttpClientRequest> asked;

 private:
  std::deque<HttpClientResponse> answers_;
};

Status Ignore(const HttpClientResponse&, std::string_view) { return OkStatus(); }

HttpClientResponse Redirect(const std::string& to) { return {.code = 302, .redirect = to}; }

TEST(Origin, IsSchemeHostAndPort) {
  EXPECT_TRUE(IsSameOrigin("https://hub.example/a", "https://HUB.example:443/b?c"));
  for (const char* other :
       {"http://hub.example/a", "https://hub.example:8443/a", "https://cdn.hub.example/a",
        "https://hub.example.evil/a", "https://evil@other.example/", "nonsense", ""}) {
    EXPECT_FALSE(IsSameOrigin("https://hub.example/a", other)) << other;
  }
  EXPECT_FALSE(IsSameOrigin("", ""));
}

TEST(FormText, EscapesAllButWhatNeedsNone) {
  EXPECT_EQ(FormText({{"code", "a b&c=d/~"}, {"state", "-._9"}, {"empty", ""}}),
            "code=a%20b%26c%3Dd%2F~&state=-._9&empty=");
  EXPECT_EQ(FormText({}), "");
}

TEST(SendFollowing, GivesTheTokenToNoOtherHost) {
  ScriptedClient client({Redirect("https://hub.example/moved"),
                         Redirect("https://cdn.example/x"),
                         Redirect("https://hub.example/back"),
                         {.code = 200}});
  const auto response =
      SendFollowing(client, {.url = "https://hub.example/a", .token = "secret"}, Ignore);
  EXPECT_EQ(response->code, 200);
  ASSERT_EQ(client.asked.size(), 4u);
  EXPECT_EQ(client.asked[1].token, "secret");
  EXPECT_EQ(client.asked[2].token, "");
  EXPECT_EQ(client.asked[3].token, "") << "a redirect may lead to any host";
}

TEST(SendFollowing, KeepsTheRangeOverRedirects) {
  ScriptedClient client({Redirect("https://cdn.example/x"), {.code = 206}});
  ASSERT_TRUE(SendFollowing(client, {.url = "https://hub.example/a", .offset = 7}, Ignore).ok());
  EXPECT_EQ(client.asked[1].offset, 7);
}

TEST(SendFollowing, AHeadRequestStopsWhereTheHubRedirects) {
  ScriptedClient client({Redirect("https://hub.example/b"), Redirect("https://cdn.example/x")});
  const auto response =
      SendFollowing(client, {.url = "https://hub.example/a", .head = true}, Ignore);
  EXPECT_EQ(response->redirect, "https://cdn.example/x");
  EXPECT_EQ(client.asked.size(), 2u);
}

TEST(SendFollowing, DoesNotGoInCircles) {
  ScriptedClient client({Redirect("https://hub.example/a")});
  EXPECT_EQ(SendFollowing(client, {.url = "https://hub.example/a"}, Ignore).status().code(),
            StatusCode::kUnavailable);
}

Result<long> Post(const std::string& url, HttpClientRequest request = {.url = ""}) {
  request.url = url;
  request.json = R"({"a":1})";
  MUSTER_ASSIGN_OR_RETURN(const HttpClientResponse response,
                          MakeHttpClient()->Send(request, Ignore));
  return response.code;
}

TEST(HttpClientTest, PostsFieldsOfAForm) {
  const HttpSinkForTest sink({200});
  const auto sent =
      MakeHttpClient()->Send({.url = sink.Url("/token"), .form = "grant_type=x"}, Ignore);
  ASSERT_TRUE(sent.ok()) << sent.status().ToString();
  ASSERT_EQ(sink.requests().size(), 1u);
  EXPECT_THAT(sink.requests()[0],
              testing::AllOf(testing::StartsWith("POST /token HTTP/1.1\r\n"),
                             testing::HasSubstr("application/x-www-form-urlencoded"),
                             testing::EndsWith("\r\n\r\ngrant_type=x")));
}

TEST(HttpClientTest, SendsNothingInPlainTextWhereOnlyHttpsIsAllowed) {
  const HttpSinkForTest sink({200});
  EXPECT_FALSE(MakeHttpClient()->Send({.url = sink.Url("/"), .only_https = true}, Ignore).ok());
  EXPECT_TRUE(sink.requests().empty());
}

TEST(HttpClientTest, PostsJson) {
  const HttpSinkForTest sink({204});
  EXPECT_EQ(Post(sink.Url("/x?y")).value(), 204);
  ASSERT_EQ(sink.requests().size(), 1u);
  EXPECT_THAT(sink.requests()[0], testing::StartsWith("POST /x?y HTTP/1.1\r\n"));
  EXPECT_THAT(sink.requests()[0], testing::HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(sink.requests()[0], testing::EndsWith("\r\n\r\n{\"a\":1}"));
}

TEST(HttpClientTest, WhatDoesNotAnswerIsGivenUpByTheLimit) {
  const HttpSinkForTest sink({0});
  EXPECT_EQ(
      Post(sink.Url("/"), {.url = "", .limit = std::chrono::milliseconds(50)}).status().code(),
      StatusCode::kUnavailable);
}

TEST(HttpClientTest, AnAddressThatIsRefusedIsNotConnected) {
  const HttpSinkForTest sink({200});
  HttpClientRequest request{.url = ""};
  std::vector<std::string> asked;
  request.check_address = [&](const IpAddress& address) {
    asked.push_back(address.ToString());
    return PermissionDenied("not that one");
  };
  EXPECT_EQ(Post(sink.Url("/"), request).status().message(), "not that one");
  EXPECT_THAT(asked, testing::ElementsAre("127.0.0.1"));
  EXPECT_TRUE(sink.requests().empty());
}

TEST(HttpClientTest, GivesUpWhenItIsCancelled) {
  const HttpSinkForTest sink({0});
  std::atomic<bool> cancelled = false;
  std::thread stop([&] {
    EXPECT_TRUE(Eventually([&] { return sink.requests().size() == 1; }));
    cancelled = true;
  });
  EXPECT_EQ(Post(sink.Url("/"), {.url = "", .cancelled = &cancelled}).status().code(),
            StatusCode::kCancelled);
  stop.join();
}

TEST(HttpClientTest, UsesTheProxyOfTheEnvironmentOnlyWhereThatIsAllowed) {
  const HttpSinkForTest proxy({418});
  const HttpSinkForTest sink({200});
  ::setenv("http_proxy", proxy.Url("").c_str(), 1);
  ::unsetenv("no_proxy");
  EXPECT_EQ(Post(sink.Url("/"), {.url = "", .may_use_proxy = false}).value(), 200);
  EXPECT_EQ(Post(sink.Url("/")).value(), 418);
  ::unsetenv("http_proxy");
}

}  // namespace
}  // namespace muster
