// Strangers at a rendezvous: connections that somebody makes who is no rank. Header of tests only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/unique_fd.h"
#include "trainer/distributed/gang_store.h"
#include "trainer/distributed/peer_proof.h"

namespace muster::testing {

inline UniqueFd ConnectTo(int port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  MUSTER_CHECK(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
               "connect");
  return fd;
}

inline void SendTo(const UniqueFd& fd, const std::string& bytes) {
  MUSTER_CHECK(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                   static_cast<ssize_t>(bytes.size()),
               "send");
}

// So many bytes, or fewer where the other end closes first.
inline std::string ReceiveFrom(const UniqueFd& fd, std::size_t bytes) {
  std::string heard(bytes, '\0');
  std::size_t have = 0;
  pollfd entry{fd.get(), POLLIN, 0};
  while (have<bytes&& ::poll(&entry, 1, 20'000)> 0) {
    const ssize_t n = ::recv(fd.get(), heard.data() + have, bytes - have, 0);
    if (n <= 0) break;
    have += static_cast<std::size_t>(n);
  }
  heard.resize(have);
  return heard;
}

inline bool IsClosed(const UniqueFd& fd) { return ReceiveFrom(fd, 1).empty(); }

inline std::string HelloOf(std::uint32_t rank, const std::string& nonce) {
  return std::string(kDoorGreeting) +
         std::string(reinterpret_cast<const char*>(&rank), sizeof rank) + nonce;
}

// One of each kind that gives itself away, and `silent` that say nothing. All stay connected.
inline std::vector<UniqueFd> Strangers(int port, int silent) {
  std::vector<UniqueFd> all;
  for (int i = 0; i < silent; ++i) all.push_back(ConnectTo(port));
  const std::string nonce(kNonceBytes, 'n');
  for (const std::string& said : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(4096, '\0'),
                                  HelloOf(1, nonce).substr(0, 9), HelloOf(1, nonce),
                                  HelloOf(1, nonce) + std::string(kProofBytes, 'p'),
                                  // c10d's hello, and a query.
                                  std::string("\0\xce\xf7\x85\x3c\5", 6)}) {
    all.push_back(ConnectTo(port));
    SendTo(all.back(), said);
  }
  return all;
}

}  // namespace muster::testing
