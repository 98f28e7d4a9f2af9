// Keys, certificates and requests between PEM and OpenSSL's objects. Only for the sources of
// common/security.
//
// Pure functions; any thread. Nothing ever asks for a password: encrypted keys are refused.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/security/openssl_handles.h"

namespace muster {

// The first certificate in the text. kInvalidArgument for all when there is none.
Result<X509Ptr> CertificateFromPem(const std::string& pem);
// All of them, in their order: a chain begins with its leaf.
Result<std::vector<X509Ptr>> CertificatesFromPem(const std::string& pem);
Result<KeyPtr> PrivateKeyFromPem(const std::string& pem);
Result<X509RequestPtr> RequestFromPem(const std::string& pem);

Result<std::string> ToPem(X509* certificate);
Result<std::string> ToPem(EVP_PKEY* private_key);
Result<std::string> ToPem(X509_REQ* request);

Result<KeyPtr> GenerateKey();  // ECDSA, P-256
bool IsP256(EVP_PKEY* key);

}  // namespace muster
