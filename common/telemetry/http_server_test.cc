#include "common/telemetry/http_server.h"

#include <gtest/gtest.h>

#include "common/telemetry/testing/http_server_testing.h"

namespace muster {
namespace {

TEST_F(HttpServerTest, AnswersWithTheHandlersResponse) {
  const std::string answer = Ask(Request("GET /metrics?a=b"));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_NE(answer.find("Content-Type: text/plain\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\nhello a=b")) << answer;
  EXPECT_TRUE(Ask(Request("GET /unwell")).starts_with("HTTP/1.1 503 "));
}

TEST_F(HttpServerTest, HeadHasTheLengthAndNoBody) {
  const std::string answer = Ask(Request("HEAD /metrics?12345"));
  EXPECT_NE(answer.find("Content-Length: 11\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST_F(HttpServerTest, RefusesOtherPathsAndMethods) {
  EXPECT_TRUE(Ask(Request("GET /metric")).starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(Ask(Request("GET /metrics/")).starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(Ask(Request("DELETE /metrics")).starts_with("HTTP/1.1 405 "));
  EXPECT_NE(Ask(Request("DELETE /metrics")).find("Allow: GET, HEAD\r\n"), std::string::npos);
}

TEST_F(HttpServerTest, KeepsAConnectionForTheNextRequest) {
  const std::string one = "GET /metrics?1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string answer = Ask(one + Request("GET /metrics?2"));
  EXPECT_NE(answer.find("hello 1"), std::string::npos);
  EXPECT_NE(answer.find("hello 2"), std::string::npos);
}

TEST_F(HttpServerTest, ClosesOnGarbageAndOnTooLargeHeaders) {
  EXPECT_EQ(Ask("\x01\x02 nonsense\r\n\r\n"), "");
  EXPECT_EQ(Ask("GET /metrics HTTP/1.1\r\nA: " + std::string(9000, 'x') + "\r\n\r\n"), "");
  EXPECT_TRUE(Ask(Request("GET /metrics")).starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, ClosesARefusedConnectionThatWouldBeKeptAlive) {
  const std::string stays = " HTTP/1.1\r\nHost: 127.0.0.1\r\n";
  for (const std::string& request :
       {"DELETE /metrics" + stays + "\r\n", "GET /metrics" + stays + "Origin: http://evil\r\n\r\n",
        std::string("GET /metrics HTTP/1.1\r\nHost: evil\r\n\r\n")}) {
    const UniqueFd fd = Connect();
    Send(fd, request);
    const std::string answer = ReadUntil(fd, "");
    EXPECT_NE(answer.find("Connection: close\r\n"), std::string::npos) << answer;
    char byte = 0;
    EXPECT_EQ(::recv(fd.get(), &byte, 1, MSG_DONTWAIT), 0) << "it is open still";
  }
}

TEST_F(HttpServerTest, ClosesAfterTheLastAnswerThoughTheReplyIsKept) {
  HttpResponder kept;
  OnLoop([&] {
    server_->HandleLater("/kept", [&](const HttpRequest&, const HttpResponder& reply) {
      kept = reply;
      reply({.body = "answered"});
    });
  });
  const UniqueFd fd = Connect();
  Send(fd, Request("GET /kept"));
  EXPECT_TRUE(ReadUntil(fd, "").ends_with("answered"));
  char byte = 0;
  EXPECT_EQ(::recv(fd.get(), &byte, 1, MSG_DONTWAIT), 0) << "it is open still";
  OnLoop([&] { kept = nullptr; });
}

// A local user without the key could hold all connections.
TEST_F(HttpServerTest, AConnectionWithoutARequestGivesWayToANewOne) {
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 2 * HttpServer::kMaxConnections; ++i) {
    idle.push_back(Connect());
    Send(idle.back(), "GET /met");
  }
  EXPECT_TRUE(Ask(Request("GET /metrics")).starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(ReadUntil(idle.front(), ""), "");
}

TEST_F(HttpServerTest, ATakenPortIsAClearError) {
  EventLoop other;
  const auto second = HttpServer::Listen(other, "127.0.0.1", server_->port());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().message(),
            "cannot serve HTTP on 127.0.0.1:" + std::to_string(server_->port()) +
                ": Address already in use; choose another port with --http");
}

TEST(HttpServer, ListensOnLoopbackOnly) {
  EventLoop loop;
  EXPECT_EQ(HttpServer::Listen(loop, "0.0.0.0", 0).status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(HttpServer::Listen(loop, "nowhere", 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(HttpServer::Listen(loop, "localhost", 0).ok());
}

}  // namespace
}  // namespace muster
