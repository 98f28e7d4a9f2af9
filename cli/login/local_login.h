// A login by the account of this process, at the socket of a coordinator on this machine
// (muster-coordinator --local-login; coordinator/service/local_logins.h).
//
// Blocks for 20 s at most; one thread.
#pragma once

#include <string>

#include "common/base/result.h"

namespace muster {

// "unix:/run/muster/login.sock" names such a socket in place of HOST:PORT.
bool IsLocalLogin(const std::string& address);

struct LocalLogin {
  std::string user;
  std::string certificate_pem;
  std::string coordinator;  // where the certificate counts, IP:PORT
  std::string cluster;
  std::string ca_pem;
};
// kPermissionDenied: the coordinator refuses, in its words; kUnavailable: another try may help.
Result<LocalLogin> LogInLocally(const std::string& address, const std::string& csr_pem);

}  // namespace muster
