// The key that a node or a user makes, and the request (PKCS #10, RFC 2986) by which it asks for a
// certificate: the key never leaves its maker. Keys are ECDSA on P-256.
//
// Only the public key of a request and the proof that the asker has the private one are used; the
// signer decides whom the certificate is for. Free functions; any thread.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/security/identity.h"

namespace muster {

struct KeyAndRequest {
  std::string key_pem;  // PKCS #8, not encrypted; secret
  std::string csr_pem;
};

Result<KeyAndRequest> MakeCertificateRequest(const Identity& identity);
// The same for a key that is there.
Result<std::string> MakeRequestFor(const Identity& identity, const std::string& key_pem);

// OK for a request that an authority would sign: well-formed, on P-256, signed with its own key.
Status CheckCertificateRequest(const std::string& csr_pem);

// The same, and whose key it is: the SHA-256 of the public key (DER), 64 lower-case hexadecimal
// digits.
Result<std::string> KeyOfRequest(const std::string& csr_pem);

}  // namespace muster
