// LossyProxyForTest: TCP between a client and a server on loopback, in which requests or answers
// can be lost. Tests only.
//
// A thread of its own passes the bytes on; the test's thread calls.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/unique_fd.h"

namespace muster {

class LossyProxyForTest {
 public:
  enum class Mode { kPass, kLoseRequests, kLoseAnswers };

  // `server` is IPv4:PORT.
  explicit LossyProxyForTest(const std::string& server)
      : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    server_ = Address(static_cast<std::uint16_t>(std::stoi(server.substr(server.find(':') + 1))));
    sockaddr_in own = Address(0);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    socklen_t size = sizeof(own);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(own.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~LossyProxyForTest() {
    stopping_ = true;
    thread_.join();
  }
  LossyProxyForTest(const LossyProxyForTest&) = delete;
  LossyProxyForTest& operator=(const LossyProxyForTest&) = delete;

  const std::string& address() const { return address_; }
  // What was lost stays so: the connections that there are end.
  void Set(Mode mode) {
    mode_ = mode;
    if (mode == Mode::kPass) cut_ = true;
  }

 private:
  struct Pair {
    UniqueFd client, server;
  };
  static sockaddr_in Address(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  // False when it is over.
  static bool Pass(int from, int to, bool lose) {
    char bytes[16384];
    const ssize_t count = ::read(from, bytes, sizeof(bytes));
    if (count <= 0) return false;
    if (lose) return true;
    for (ssize_t done = 0; done < count;) {
      const ssize_t more =
          ::send(to, bytes + done, static_cast<std::size_t>(count - done), MSG_NOSIGNAL);
      if (more <= 0) return false;
      done += more;
    }
    return true;
  }
  void Accept() {
    Pair pair{UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)),
              UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
    if (::connect(pair.server.get(), reinterpret_cast<sockaddr*>(&server_), sizeof(server_)) == 0)
      pairs_.push_back(std::move(pair));
  }
  void Run() {
    while (!stopping_) {
      if (cut_.exchange(false)) pairs_.clear();
      std::vector<pollfd> waits = {{listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        waits.push_back({pair.client.get(), POLLIN, 0});
        waits.push_back({pair.server.get(), POLLIN, 0});
      }
      if (::poll(waits.data(), waits.size(), 10) <= 0) continue;
      const Mode mode = mode_;
      for (std::size_t i = pairs_.size(); i-- > 0;) {
        const Pair& pair = pairs_[i];
        const bool lives =
            (waits[2 * i + 1].revents == 0 ||
             Pass(pair.client.get(), pair.server.get(), mode == Mode::kLoseRequests)) &&
            (waits[2 * i + 2].revents == 0 ||
             Pass(pair.server.get(), pair.client.get(), mode == Mode::kLoseAnswers));
        if (!lives) pairs_.erase(pairs_.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (waits[0].revents != 0) Accept();
    }
  }

  UniqueFd listener_;
  sockaddr_in server_{};
  std::string address_;
  std::vector<Pair> pairs_;  // the thread's
  std::atomic<Mode> mode_ = Mode::kPass;
  std::atomic<bool> cut_ = false;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace muster
