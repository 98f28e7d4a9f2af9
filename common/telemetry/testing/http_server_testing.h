// An HttpServer in plain text on a loop of its own, and a client that sends what it likes. For
// tests; one thread drives it.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "common/base/unique_fd.h"
#include "common/runtime/testing/loop_thread.h"
#include "common/telemetry/http_server.h"

namespace muster {

class HttpServerTest : public testing::Test {
 protected:
  explicit HttpServerTest(Duration heartbeat = kHttpHeartbeat) {
    auto server = HttpServer::Listen(loop_, "127.0.0.1", 0, heartbeat);
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    server_->Handle("/metrics", [client = std::this_thread::get_id()](const std::string& query) {
      EXPECT_NE(std::this_thread::get_id(), client);
      return HttpResponse{200, "text/plain", "hello " + query};
    });
    server_->Handle("/unwell", [](const std::string&) {
      return HttpResponse{503, "text/plain", "no"};
    });
  }
  void SetUp() override { thread_.emplace(loop_); }

  // For destructors of those whose members the loop uses.
  void StopLoop() { thread_.reset(); }

  void OnLoop(const std::function<void()>& function) { thread_->Do(function); }

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
  static void Send(const UniqueFd& fd, const std::string& text) {
    EXPECT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // Until `mark` has come, the other side has closed, or nothing came for 5 s.
  static std::string ReadUntil(const UniqueFd& fd, const std::string& mark) {
    std::string answer;
    char buffer[65536];
    for (bool found = false; !found;) {
      const ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, 0);
      if (n <= 0) break;
      const std::size_t before = answer.size() - std::min(answer.size(), mark.size());
      answer.append(buffer, static_cast<std::size_t>(n));
      found = !mark.empty() && answer.find(mark, before) != std::string::npos;
    }
    return answer;
  }

  // A connection of which what was read beyond a mark is kept, for the head of a stream and its
  // first event may come together.
  struct Reader {
    UniqueFd fd;
    std::string rest;

    // Up to and with `mark`; what there is where it does not come.
    std::string Until(const std::string& mark) {
      char buffer[65536];
      std::size_t found = rest.find(mark);
      while (found == std::string::npos) {
        const std::size_t searched = rest.size() - std::min(rest.size(), mark.size());
        const ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, 0);
        if (n <= 0) return std::exchange(rest, "");
        rest.append(buffer, static_cast<std::size_t>(n));
        found = rest.find(mark, searched);
      }
      std::string out = rest.substr(0, found + mark.size());
      rest.erase(0, out.size());
      return out;
    }
  };

  // What the server answers until it closes the connection.
  std::string Ask(const std::string& request) const {
    const UniqueFd fd = Connect();
    Send(fd, request);
    return ReadUntil(fd, "");
  }

  static std::string Request(const std::string& line, const std::string& fields = "") {
    return line + " HTTP/1.1\r\nHost: 127.0.0.1:80\r\nConnection: close\r\n" + fields + "\r\n";
  }

  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
  std::optional<LoopThreadForTest> thread_;
};

}  // namespace muster
