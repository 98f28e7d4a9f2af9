#include "common/telemetry/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "common/base/unique_fd.h"

namespace muster {
namespace {

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    auto server = HttpServer::Listen(loop_, "127.0.0.1", 0);
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    server_->Handle("/metrics", [this](const std::string& query) {
      EXPECT_TRUE(loop_.OnLoopThread());
      return HttpResponse{200, "text/plain", "hello " + query};
    });
    server_->Handle("/unwell", [](const std::string&) {
      return HttpResponse{503, "text/plain", "no"};
    });
    thread_ = std::thread([this] { loop_.Run(); });
  }
  ~HttpServerTest() override {
    loop_.Stop();
    thread_.join();
  }

  UniqueFd Connect() const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const timeval timeout{.tv_sec = 5, .tv_usec = 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    return fd;
  }

  // What the server answers until it closes the connection.
  std::string Ask(const std::string& request) const {
    const UniqueFd fd = Connect();
    EXPECT_EQ(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string answer;
    char buffer[4096];
    for (ssize_t n; (n = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(n));
    return answer;
  }

  static std::string Request(const std::string& line) {
    return line + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  }

  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

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
  const std::string one = "GET /metrics?1 HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string answer = Ask(one + Request("GET /metrics?2"));
  EXPECT_NE(answer.find("hello 1"), std::string::npos);
  EXPECT_NE(answer.find("hello 2"), std::string::npos);
}

TEST_F(HttpServerTest, ClosesOnGarbageAndOnTooLargeHeaders) {
  EXPECT_EQ(Ask("\x01\x02 nonsense\r\n\r\n"), "");
  EXPECT_EQ(Ask("GET /metrics HTTP/1.1\r\nA: " + std::string(9000, 'x') + "\r\n\r\n"), "");
  EXPECT_TRUE(Ask(Request("GET /metrics")).starts_with("HTTP/1.1 200 "));
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
