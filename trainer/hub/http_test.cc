#include "trainer/hub/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

namespace muster {
namespace {

// Answers in turn, and what it was asked.
class ScriptedClient : public HttpClient {
 public:
  explicit ScriptedClient(std::deque<HttpResponse> answers) : answers_(std::move(answers)) {}
  Result<HttpResponse> Send(const HttpRequest& request, const HttpSink&) override {
    asked.push_back(request);
    HttpResponse answer = answers_.front();
    if (answers_.size() > 1) answers_.pop_front();
    return answer;
  }
  std::vector<HttpRequest> asked;

 private:
  std::deque<HttpResponse> answers_;
};

Status Ignore(const HttpResponse&, std::string_view) { return OkStatus(); }

HttpResponse Redirect(const std::string& to) { return {.code = 302, .redirect = to}; }

TEST(Origin, IsSchemeHostAndPort) {
  EXPECT_TRUE(IsSameOrigin("https://hub.example/a", "https://HUB.example:443/b?c"));
  for (const char* other :
       {"http://hub.example/a", "https://hub.example:8443/a", "https://cdn.hub.example/a",
        "https://hub.example.evil/a", "https://evil@other.example/", "nonsense", ""}) {
    EXPECT_FALSE(IsSameOrigin("https://hub.example/a", other)) << other;
  }
  EXPECT_FALSE(IsSameOrigin("", ""));
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
  EXPECT_EQ(client.asked[3].token, "") << "who was led away may be led anywhere";
}

TEST(SendFollowing, KeepsTheRangeOverRedirects) {
  ScriptedClient client({Redirect("https://cdn.example/x"), {.code = 206}});
  ASSERT_TRUE(SendFollowing(client, {.url = "https://hub.example/a", .offset = 7}, Ignore).ok());
  EXPECT_EQ(client.asked[1].offset, 7);
}

TEST(SendFollowing, OfAHeadStopsWhereTheHubSendsAway) {
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

}  // namespace
}  // namespace muster
