// What HttpServer refuses, and what it says in the head of every answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/telemetry/testing/http_server_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(HttpServerTest, AnswersOnlyRequestsForAnAddress) {
  for (const char* host : {"localhost", "localhost:8080", "127.0.0.1", "127.0.0.1:1", "[::1]:80"})
    EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\nConnection: close\r\nHost: " + std::string(host) +
                    "\r\n\r\n"),
                StartsWith("HTTP/1.1 200 "))
        << host;
  for (const char* host : {"evil.example", "evil.example:80", "localhost.evil.example",
                           "127.0.0.1.evil.example", "127.0.0.1:1@evil.example", ""})
    EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\nConnection: close\r\nHost: " + std::string(host) +
                    "\r\n\r\n"),
                StartsWith("HTTP/1.1 421 "))
        << host;
}

TEST_F(HttpServerTest, ARequestNamesItsHostOnce) {
  EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask(Request("GET /metrics", "Host: evil.example\r\n")), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("GET /metrics HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.0 200 "));
}

TEST_F(HttpServerTest, PagesOfOtherOriginsGetNothing) {
  EXPECT_THAT(Ask(Request("GET /metrics", "Origin: http://127.0.0.1:80\r\n")),
              StartsWith("HTTP/1.1 200 "));
  for (const char* origin : {"http://evil.example", "http://127.0.0.1:81", "null"})
    EXPECT_THAT(Ask(Request("GET /metrics", "Origin: " + std::string(origin) + "\r\n")),
                StartsWith("HTTP/1.1 403 "))
        << origin;
  EXPECT_THAT(Ask(Request("GET /metrics")), Not(HasSubstr("Access-Control")));
}

TEST_F(HttpServerTest, EveryAnswerForbidsWhatABrowserMightDoWithIt) {
  for (const char* line : {"GET /metrics", "GET /nowhere", "POST /metrics"}) {
    const std::string answer = Ask(Request(line));
    EXPECT_THAT(answer, HasSubstr("Content-Security-Policy: default-src 'none'; "
                                  "frame-ancestors 'none'\r\n"));
    EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
    EXPECT_THAT(answer, HasSubstr("Referrer-Policy: no-referrer\r\n"));
    EXPECT_THAT(answer, HasSubstr("Cache-Control: no-store\r\n"));
  }
}

// Two that a proxy and we could take apart in different ways must not become two requests.
TEST_F(HttpServerTest, RequestsOfTwoMeaningsAreNotAnswered) {
  const std::string second = "GET /unwell HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string first = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n";
  for (const std::string& fields :
       {std::string("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        std::string("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        std::string("Content-Length: 5\r\nContent-Length: 6\r\n"),
        std::string("Content-Length: -1\r\n"), std::string("Content-Length : 4\r\n"),
        std::string("A: b\r\n c: d\n\r\n"), std::string("A\0: b\r\n", 8)}) {
    const std::string answer = Ask(first + fields + "\r\n0\r\n\r\n" + second);
    EXPECT_THAT(answer, Not(HasSubstr("503 "))) << fields;
  }
}

TEST_F(HttpServerTest, ABodyIsReadAndNotTakenForARequest) {
  const std::string smuggled = "GET /unwell HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string answer =
      Ask(Request("GET /metrics", "Content-Length: " + std::to_string(smuggled.size()) + "\r\n") +
          smuggled);
  EXPECT_THAT(answer, HasSubstr("hello"));
  EXPECT_THAT(answer, Not(HasSubstr("503 ")));
}

TEST_F(HttpServerTest, PathsAreTakenAsTheyAreWritten) {
  for (const char* path : {"/%6detrics", "//metrics", "/./metrics", "/x/../metrics", "/metrics%00",
                           "http://localhost/metrics", "*"})
    EXPECT_THAT(Ask(Request("GET " + std::string(path))), StartsWith("HTTP/1.1 404 ")) << path;
}

}  // namespace
}  // namespace muster
