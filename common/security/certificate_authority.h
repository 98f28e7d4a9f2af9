// CertificateAuthority: the cluster's own, made by `muster init` or, for the time of an allocation,
// by a supervisor. It signs every certificate of the cluster itself.
//
// Its directory (0700) holds
//   ca.pem        its certificate, which all programs have
//   ca.key        its private key, 0600: its holder can take any identity. A key
//                 that group or others may read, a symbolic link, or another user's file is
//                 refused.
//   issued.jsonl  every certificate it signed, written before the certificate is handed out
//                 (issued_register.h)
//
// The coordinator owns one, and the commands `muster init` and `muster certs` for a moment each.
// Any thread: its members do not change, and the register is appended to under a file's lock. All
// functions block on the disk. Times are milliseconds since the Unix epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/security/certificate.h"
#include "common/security/identity.h"

namespace muster {

struct IssuedCertificate {
  std::string certificate_pem;
  std::string key_pem;  // PKCS #8, not encrypted
};

class CertificateAuthority {
 public:
  // Makes the directory where there is none. kAlreadyExists where there is an authority: nothing is
  // ever overwritten.
  static Result<CertificateAuthority> Create(const std::string& dir, const std::string& cluster,
                                             std::int64_t now_ms,
                                             Duration lifetime = kAuthorityLifetime);
  // kNotFound where there is none.
  static Result<CertificateAuthority> Open(const std::string& dir);

  CertificateAuthority(CertificateAuthority&&) noexcept;
  CertificateAuthority& operator=(CertificateAuthority&&) noexcept;
  ~CertificateAuthority();

  const std::string& cluster() const { return info_.cluster; }
  const std::string& certificate_pem() const { return certificate_pem_; }
  const AuthorityInfo& info() const { return info_; }

  // A new key and its certificate. A lifetime beyond the authority's own ends with it. Refused:
  // another cluster's identity, less than a minute, an authority that has expired.
  Result<IssuedCertificate> Issue(const Identity& identity, Duration lifetime,
                                  std::int64_t now_ms) const;

  // A certificate for the key of a request (certificate_request.h). Its subject and extensions are
  // not looked at: the certificate is `identity`'s.
  // Two halves, for many requests at once: SignUnrecorded does not touch the disk, and what it
  // returns is handed out only after Record, which waits for the disk once for all.
  Result<std::string> SignUnrecorded(const std::string& csr_pem, const Identity& identity,
                                     Duration lifetime, std::int64_t now_ms) const;
  Status Record(std::span<const std::string> certificate_pems, std::int64_t now_ms) const;

  // A new authority for users' certificates, below this one, good for as long as this one
  // (user_authority.h); nothing is written.
  struct UserAuthorityFiles {
    std::string root_pem;  // of this authority's key, for those who believe the other one too
    std::string certificate_pem;
    std::string key_pem;
  };
  Result<UserAuthorityFiles> MakeUserAuthority(std::int64_t now_ms) const;

  // kFailedPrecondition once another authority is in the directory (`muster init --force`): no
  // program accepts any more what this one signs.
  Status CheckInForce() const;

 private:
  struct Keys;  // OpenSSL's, kept out of this header
  CertificateAuthority(std::string dir, std::string certificate_pem, AuthorityInfo info,
                       std::unique_ptr<Keys> keys);

  std::string dir_;
  std::string certificate_pem_;
  AuthorityInfo info_;
  std::unique_ptr<Keys> keys_;
};

}  // namespace muster
