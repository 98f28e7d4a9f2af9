// Certificates as text (PEM): what one says, and what belongs to it.
//
// Formats: X.509 of RFC 5280, PEM of RFC 7468. Certificates are signed by the cluster's authority
// itself, but for those of people who log in: between stands the authority for users
// (user_authority.h), whose certificate follows theirs. Pure functions; any thread. Times are
// milliseconds since the Unix epoch, in whole seconds as certificates have them.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/security/identity.h"

namespace muster {

struct CertificateInfo {
  Identity identity;
  std::string serial;             // 32 lower-case hexadecimal digits
  std::int64_t issued_ms = 0;     // kClockSkew after the certificate's notBefore
  std::int64_t not_after_ms = 0;  // refused from then on

  friend bool operator==(const CertificateInfo&, const CertificateInfo&) = default;
};

// What the certificate says, believed or not: for a peer that TLS has already verified, and for
// lists. kInvalidArgument for what is no PEM certificate, or not one of a Muster authority; so is
// what the authority for users has signed for another role.
Result<CertificateInfo> ReadCertificate(const std::string& certificate_pem);

struct AuthorityInfo {
  std::string cluster;
  std::int64_t not_before_ms = 0;
  std::int64_t not_after_ms = 0;
  std::string fingerprint;  // SHA-256 of the certificate (DER), 64 lower-case hexadecimal digits
};
// Reads the certificate of an authority (ca.pem).
Result<AuthorityInfo> ReadAuthority(const std::string& ca_pem);

// OK when the private key is the one of the certificate, and `ca_pem` has signed it, itself or by
// the authority that follows it, at whatever time: that three files belong together. No key may be
// one of RSA.
Status CheckBelongTogether(const std::string& ca_pem, const std::string& certificate_pem,
                           const std::string& key_pem);

// DER of the first certificate in PEM, and back: join tokens carry the authority's that way.
Result<std::string> PemToDer(const std::string& certificate_pem);
Result<std::string> DerToPem(const std::string& certificate_der);

}  // namespace muster
