// Logins of this person, one directory for each cluster (docs/users.md):
//
//   $XDG_CONFIG_HOME/muster/clusters/NAME    0700
//     login.json                             0600: who, where, and the issuer's refresh token
//     ca.pem cert.pem key.pem                credentials (common/security/credentials.h)
//   $XDG_CONFIG_HOME/muster/clusters/.current   the cluster of the latest login
//
// Files are replaced as a whole. One thread; blocks on the disk.
#pragma once

#include <string>
#include <utility>

#include "common/base/result.h"

namespace muster {

struct Login {
  std::string cluster;
  std::string user;
  std::string address;      // where people log in, HOST:PORT or unix:PATH
  std::string coordinator;  // where certificates count, IP:PORT
  std::string issuer;       // empty: the account of this machine counts
  std::string client_id;
  std::string token_endpoint;
  std::string revocation_endpoint;  // empty: there is none
  std::string issuer_ca_pem;        // authorities of the issuer besides the system's
  std::string refresh_token;        // secret; empty: the certificate is not renewed
};

class LoginStore {
 public:
  // `root`: the folder `clusters`.
  explicit LoginStore(std::string root) : root_(std::move(root)) {}
  // By XDG_CONFIG_HOME, else HOME; empty where neither is set.
  static std::string RootOfUser();

  const std::string& root() const { return root_; }
  std::string DirOf(const std::string& cluster) const { return root_ + "/" + cluster; }
  std::string CaPath(const std::string& cluster) const { return DirOf(cluster) + "/ca.pem"; }

  // kNotFound: there is no login.
  Result<std::string> Current() const;
  Result<Login> Load(const std::string& cluster) const;
  Status Save(const Login& login) const;
  Status MakeCurrent(const std::string& cluster) const;
  // Takes key, certificate and refresh token away: only a new login helps then.
  Status End(Login login) const;
  Status Remove(const std::string& cluster) const;

 private:
  std::string root_;
};

}  // namespace muster
