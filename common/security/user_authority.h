// UserAuthority: signs the short certificates of people who log in (docs/users.md). It stands
// between the cluster's authority and theirs, so its certificate follows theirs in a chain.
//
// Its directory (DIR/security/users, 0700) holds
//   cert.pem   its certificate, signed by the cluster's authority: for clients' certificates alone
//   key.pem    its private key, 0600: its holder can be any user, and no other role
//              (certificate.h)
//   root.pem   the cluster's authority once more, with the same name and key, but allowing one
//              authority below it, which ca.pem does not. Servers that believe users believe this
//              one in place of ca.pem; all other programs have ca.pem and believe no such chain.
//
// `muster init` makes it, each coordinator has its own. Its certificates are not in the issued
// register: they end within the hour, many are made a day, and the audit trail has each. They are
// revoked by name, or by the serial that the trail has.
//
// Any thread: its members do not change. Times are milliseconds since the Unix epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/security/certificate_authority.h"

namespace muster {

inline constexpr Duration kUserCertificateLifetime = std::chrono::hours(1);  // at most

class UserAuthority {
 public:
  // Where there is none yet. True: it was made. Blocks.
  static Result<bool> Ensure(const CertificateAuthority& authority, const std::string& dir,
                             std::int64_t now_ms);
  // `ca_pem`: the cluster's authority, which must have signed this one. kNotFound where there is
  // none. Blocks.
  static Result<UserAuthority> Open(const std::string& dir, const std::string& ca_pem);
  static std::string RootPath(const std::string& dir) { return dir + "/root.pem"; }

  UserAuthority(UserAuthority&&) noexcept;
  UserAuthority& operator=(UserAuthority&&) noexcept;
  ~UserAuthority();

  // The chain for the key of a request (certificate_request.h): the user's certificate, and this
  // authority's. Does not touch the disk.
  Result<std::string> Sign(const std::string& csr_pem, const std::string& user, Duration lifetime,
                           std::int64_t now_ms) const;

 private:
  struct Keys;  // OpenSSL's, kept out of this header
  UserAuthority(std::string certificate_pem, AuthorityInfo info, std::unique_ptr<Keys> keys);

  std::string certificate_pem_;
  AuthorityInfo info_;
  std::unique_ptr<Keys> keys_;
};

}  // namespace muster
