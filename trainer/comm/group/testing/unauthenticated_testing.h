// Strangers at a rendezvous: connections from a process that is no rank. Header of tests only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/unique_fd.h"
#include "trainer/comm/rendezvous/gang_store.h"
#include "trainer/comm/rendezvous/peer_proof.h"

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

inline bool HasWord(const UniqueFd& fd) {
  pollfd entry{fd.get(), POLLIN, 0};
  return ::poll(&entry, 1, 20'000) == 1;
}

// So many bytes, or fewer where the other end closes first.
inline std::string ReceiveFrom(const UniqueFd& fd, std::size_t bytes) {
  std::string heard(bytes, '\0');
  std::size_t have = 0;
  while (have < bytes && HasWord(fd)) {
    const ssize_t n = ::recv(fd.get(), heard.data() + have, bytes - have, 0);
    if (n <= 0) break;
    have += static_cast<std::size_t>(n);
  }
  heard.resize(have);
  return heard;
}

inline bool IsClosed(const UniqueFd& fd) {
  char byte;
  return HasWord(fd) && ::recv(fd.get(), &byte, 1, 0) <= 0;
}

struct SocketName {
  sockaddr_storage address{};
  socklen_t length = sizeof(sockaddr_storage);

  int port() const { return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port); }
};

// The sockets of one family that this process listens on.
inline std::vector<SocketName> ListeningSockets(sa_family_t family) {
  std::vector<SocketName> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    int listens = 0;
    socklen_t size = sizeof listens;
    SocketName name;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&name.address), &name.length) == 0 &&
        name.address.ss_family == family)
      found.push_back(name);
  }
  return found;
}

// Invalid where no client is let in any more. Does not wait.
inline UniqueFd ConnectTo(const SocketName& name, int type) {
  UniqueFd fd(::socket(name.address.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length);
  if (rc != 0 && errno != EINPROGRESS) fd.reset();
  return fd;
}

inline std::string HelloOf(std::uint32_t rank, const std::string& nonce) {
  return std::string(kAuthenticatedGreeting) +
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
