// LocalLogins: people of this machine log in by the account of their process, which the kernel says
// (SO_PEERCRED): gRPC gives its handlers no such thing.
//
// A SOCK_SEQPACKET socket that all may connect to. A client sends one packet, a certificate request
// (PEM), and receives one: {"user", "certificate_pem", "coordinator", "cluster", "ca_pem"}, or
// {"error", "again"}, the latter where another try may help.
//
// Owned by the server; the loop's thread, but for lookups of accounts, which may wait for a
// directory server and have a thread of their own. Connections are bounded, in all and of an
// account, and last for kLimit at most.
#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/runtime/event_loop.h"
#include "coordinator/service/login_service.h"

namespace muster {

class LocalLogins {
 public:
  static constexpr std::size_t kMaxConnections = 64;
  static constexpr std::size_t kMaxOfAnAccount = 8;
  static constexpr Duration kLimit = std::chrono::seconds(10);

  // Replaces what a former process has left at `path`; kInvalidArgument for one that is too long.
  static Result<std::unique_ptr<LocalLogins>> Listen(EventLoop& loop, LoginService& logins,
                                                     const std::string& path);
  ~LocalLogins();
  LocalLogins(const LocalLogins&) = delete;
  LocalLogins& operator=(const LocalLogins&) = delete;

 private:
  struct Impl;
  explicit LocalLogins(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
