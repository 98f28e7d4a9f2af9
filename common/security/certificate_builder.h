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

// An authority's own, signed with its key.
Result<X509Ptr> BuildAuthority(EVP_PKEY* key, const std::string& cluster, const Validity& validity);

// Of `public_key`'s owner, signed by the authority.
Result<X509Ptr> BuildCertificate(EVP_PKEY* public_key, const Identity& identity,
                                 const Validity& validity, X509* authority,
                                 EVP_PKEY* authority_key);

}  // namespace muster
