// Makes certificates, as CertificateAuthority signs them. Only for the sources of common/security.
//
// The extensions are those of RFC 5280, 4.2.1: key usage, extended key usage by the role, basic
// constraints, key identifiers, and the identity as the subject's alternative name. Free functions;
// any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/security/identity.h"
#include "common/security/openssl_handles.h"

namespace muster {

struct Validity {
  std::int64_t not_before_ms = 0;
  std::int64_t not_after_ms = 0;
};

// Who signs, as the certificates' organization: the cluster's authority itself, or the one for
// users, whose certificates speak for users alone.
inline constexpr char kAuthorityOrganization[] = "Muster certificate authority";
inline constexpr char kUserAuthorityOrganization[] = "Muster user authority";

// An authority's own, signed with its key. `path_length`: how many authorities may stand between
// it and a certificate.
Result<X509Ptr> BuildAuthority(EVP_PKEY* key, const std::string& cluster, const Validity& validity,
                               int path_length = 0);

// The certificate of an authority for users' certificates alone, below the cluster's.
Result<X509Ptr> BuildUserAuthority(EVP_PKEY* key, const std::string& cluster,
                                   const Validity& validity, X509* authority,
                                   EVP_PKEY* authority_key);

// Of 127.0.0.1 as server and client, signed with its own key.
Result<X509Ptr> BuildLoopbackCertificate(EVP_PKEY* key, const std::string& name,
                                         const Validity& validity);

// Of `public_key`'s owner, signed by the authority.
Result<X509Ptr> BuildCertificate(EVP_PKEY* public_key, const Identity& identity,
                                 const Validity& validity, X509* authority,
                                 EVP_PKEY* authority_key);

}  // namespace muster
