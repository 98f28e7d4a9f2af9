// ListenerForTest: a port of loopback at which the kernel takes connections, until it is closed.
// Tests only.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "common/base/unique_fd.h"

namespace muster {

class ListenerForTest {
 public:
  ListenerForTest() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
    EXPECT_EQ(::listen(fd_.get(), 64), 0);
    socklen_t size = sizeof own;
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(own.sin_port));
  }

  const std::string& address() const { return address_; }
  // Until a client has connected, and has closed the connection.
  void AwaitClient() const {
    const UniqueFd client(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    char byte = 0;
    EXPECT_EQ(::read(client.get(), &byte, 1), 0);
  }
  void Close() { fd_.reset(); }

 private:
  UniqueFd fd_;
  std::string address_;
};

}  // namespace muster
