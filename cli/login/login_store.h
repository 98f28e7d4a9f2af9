// Logins of this person, one directory for each cluster (docs/users.md):
//
//   $XDG_CONFIG_HOME/muster/clusters/NAME    0700
//     login.json                             0600: who, where, and the issuer's refresh token,
//                                            unless the keyring has that (keyring.h)
//     ca.pem cert.pem key.pem                credentials (common/security/credentials.h)
//   $XDG_CONFIG_HOME/muster/clusters/.current   the cluster of the latest login
//
// Files are replaced as a whole. One thread; blocks on the disk, and for the keyring's limit.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "cli/login/keyring.h"
#include "common/base/result.h"

namespace muster {

enum class TokenPlace { kFile, kKeyring };

struct Login {
  std::string cluster;
  std::string user;
  std::string address;      // where people log in, HOST:PORT or unix:PATH
  std::string others;       // the same at all coordinators, as the latest login has learned
  std::string coordinator;  // where certificates count, IP:PORT[,...]
  std::string issuer;       // empty: the account of this machine counts
  std::string client_id;
  std::string token_endpoint;
  std::string revocation_endpoint;  // empty: there is none
  std::string issuer_ca_pem;        // authorities of the issuer besides the system's
  // Secret; empty: the keyring has it, or there is none and the certificate is not renewed.
  std::string refresh_token;
  TokenPlace place = TokenPlace::kFile;  // where it is, or is to be once it is saved
  std::string why_in_file;  // the keyring's reason not to take it, from Save; not stored
};

class LoginStore {
 public:
  // `root`: the folder `clusters`.
  explicit LoginStore(std::string root, std::optional<Keyring> keyring = std::nullopt)
      : root_(std::move(root)), keyring_(std::move(keyring)) {}
  // By XDG_CONFIG_HOME, else HOME, with the session's keyring. kFailedPrecondition where neither is
  // set.
  static Result<LoginStore> OfUser();

  bool has_keyring() const { return keyring_.has_value(); }

  const std::string& root() const { return root_; }
  std::string DirOf(const std::string& cluster) const { return root_ + "/" + cluster; }
  std::string CaPath(const std::string& cluster) const { return DirOf(cluster) + "/ca.pem"; }

  // kNotFound: there is no login.
  Result<std::string> Current() const;
  Result<Login> Load(const std::string& cluster) const;
  // A token that belongs into the keyring moves there, out of `login`. Where the keyring does not
  // take it, it goes into the file: a token that was renewed must not be lost. One that the keyring
  // had, and that belongs there no more, leaves it.
  Status Save(Login* login) const;
  // The login's, from where it is. kUnavailable, with what to do, where the keyring does not give
  // it.
  Result<std::string> RefreshToken(const Login& login) const;
  // OK where it has none.
  Status RemoveFromKeyring(const std::string& cluster) const;
  Status MakeCurrent(const std::string& cluster) const;
  // Takes key, certificate and refresh token away: only a new login helps then.
  Status End(Login login) const;
  // The files.
  Status Remove(const std::string& cluster) const;

 private:
  KeyringEntry EntryOf(const std::string& cluster) const { return {cluster, root_}; }

  std::string root_;
  std::optional<Keyring> keyring_;
};

}  // namespace muster
