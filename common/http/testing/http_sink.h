// A little HTTP server for tests of clients: answers each connection with the next of its scripted
// codes (the last one again and again) and keeps what was sent. Code 0: it never answers.
//
// A thread of its own, joined by the destructor. Tests only; thread-safe.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/unique_fd.h"

namespace muster {

class HttpSinkForTest {
 public:
  explicit HttpSinkForTest(std::vector<int> codes)
      : codes_(std::move(codes)),
        listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
        stop_(::eventfd(0, EFD_CLOEXEC)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(listener_.get(), 64) != 0 ||
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~HttpSinkForTest() {
    const std::uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof one) != sizeof one) std::abort();
    thread_.join();
  }

  int port() const { return port_; }
  std::string Url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  // Head and body of every request so far.
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  bool Readable(int fd) const {
    pollfd fds[] = {{fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    return ::poll(fds, 2, -1) > 0 && fds[1].revents == 0;
  }

  std::string ReadRequest(int fd) const {
    std::string text;
    while (Readable(fd)) {
      char buffer[4096];
      const ssize_t n = ::read(fd, buffer, sizeof buffer);
      if (n <= 0) break;
      text.append(buffer, static_cast<std::size_t>(n));
      const std::size_t head = text.find("\r\n\r\n");
      const std::size_t length = text.find("Content-Length: ");
      if (head == std::string::npos || length == std::string::npos) continue;
      if (text.size() >= head + 4 + std::strtoul(text.c_str() + length + 16, nullptr, 10)) break;
    }
    return text;
  }

  void Serve() {
    std::vector<UniqueFd> unanswered;
    while (Readable(listener_.get())) {
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd.valid()) continue;
      std::string request = ReadRequest(fd.get());
      int code = 0;
      {
        const std::lock_guard lock(mutex_);
        code = codes_[std::min(requests_.size(), codes_.size() - 1)];
        requests_.push_back(std::move(request));
      }
      const std::string reply =
          "HTTP/1.1 " + std::to_string(code) + " X\r\nContent-Length: 0\r\n\r\n";
      if (code == 0)
        unanswered.push_back(std::move(fd));
      else
        (void)::send(fd.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
    }
  }

  const std::vector<int> codes_;
  const UniqueFd listener_;
  const UniqueFd stop_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace muster
