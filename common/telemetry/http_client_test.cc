#include "common/telemetry/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "common/telemetry/http_sink_for_test.h"

namespace muster {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

// Runs the loop until the reply is there.
HttpReply PostTo(const std::string& url, Duration limit = 10s) {
  EventLoop loop;
  std::optional<HttpReply> reply;
  PostJson(loop, ParseHttpUrl(url).value(), R"({"a":1})", limit, [&](const HttpReply& r) {
    EXPECT_TRUE(loop.OnLoopThread());
    reply = r;
    loop.Stop();
  });
  loop.Run();
  return reply.value_or(HttpReply{Internal("no reply"), -1});
}

TEST(HttpClient, PostsTheBodyAsJson) {
  HttpSinkForTest sink({204});
  const HttpReply reply = PostTo(sink.Url("/hook?x=1"));
  EXPECT_TRUE(reply.ok()) << reply.status.ToString();
  EXPECT_EQ(reply.code, 204);
  ASSERT_EQ(sink.requests().size(), 1u);
  const std::string request = sink.requests()[0];
  EXPECT_THAT(request, HasSubstr("POST /hook?x=1 HTTP/1.1\r\n"));
  EXPECT_THAT(request, HasSubstr("Host: 127.0.0.1:" + std::to_string(sink.port()) + "\r\n"));
  EXPECT_THAT(request, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_TRUE(request.ends_with("\r\n\r\n{\"a\":1}")) << request;
}

TEST(HttpClient, ToldWhetherAnotherTryMayHelp) {
  HttpSinkForTest sink({500, 404});
  const HttpReply broken = PostTo(sink.Url("/"));
  EXPECT_FALSE(broken.ok());
  EXPECT_TRUE(broken.WorthAnotherTry());
  const HttpReply absent = PostTo(sink.Url("/"));
  EXPECT_FALSE(absent.ok());
  EXPECT_FALSE(absent.WorthAnotherTry());
}

TEST(HttpClient, AServerThatDoesNotAnswerIsGivenUpAtTheLimit) {
  HttpSinkForTest sink({0});
  const HttpReply reply = PostTo(sink.Url("/"), 100ms);
  EXPECT_EQ(reply.code, 0);
  EXPECT_EQ(reply.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(reply.WorthAnotherTry());
}

TEST(HttpClient, NobodyThereIsAnError) {
  std::string url;
  {
    const HttpSinkForTest gone({200});
    url = gone.Url("/");
  }
  const HttpReply reply = PostTo(url);
  EXPECT_EQ(reply.status.code(), StatusCode::kUnavailable);
}

TEST(HttpClient, ReadsUrls) {
  EXPECT_EQ(ParseHttpUrl("http://host/a/b?c").value(), (HttpUrl{"host", "80", "/a/b?c"}));
  EXPECT_EQ(ParseHttpUrl("http://host:8080").value(), (HttpUrl{"host", "8080", "/"}));
  EXPECT_EQ(ParseHttpUrl("http://host?c").value(), (HttpUrl{"host", "80", "/?c"}));
  EXPECT_EQ(ParseHttpUrl("http://[::1]:81/x").value(), (HttpUrl{"::1", "81", "/x"}));
  for (const char* bad : {"", "https://h/", "http://", "http://:80/", "http://h:0/", "http://h:x/",
                          "http://h:99999/", "http://u:p@h/", "http://h/a b", "http://h/\r\nX: y"})
    EXPECT_FALSE(ParseHttpUrl(bad).ok()) << bad;
}

}  // namespace
}  // namespace muster
