#include "common/security/certificate_request.h"

#include "common/security/encoding.h"
#include "common/security/pem.h"

namespace muster {

namespace {

Result<std::string> RequestWith(const Identity& identity, EVP_PKEY* key) {
  MUSTER_RETURN_IF_ERROR(CheckIdentity(identity));
  const OpenSslErrors errors;
  const X509RequestPtr request(X509_REQ_new());
  const X509NamePtr name(X509_NAME_new());
  const auto* common_name = reinterpret_cast<const unsigned char*>(identity.name.data());
  const int length = static_cast<int>(identity.name.size());
  const bool made =
      request && name &&
      X509_NAME_add_entry_by_txt(name.get(), "CN", MBSTRING_ASC, common_name, length, -1, 0) == 1 &&
      X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) == 1 &&
      X509_REQ_set_subject_name(request.get(), name.get()) == 1 &&
      X509_REQ_set_pubkey(request.get(), key) == 1 &&
      X509_REQ_sign(request.get(), key, EVP_sha256()) > 0;
  if (!made) return errors.Take(StatusCode::kInternal, "make a certificate request");
  return ToPem(request.get());
}

}  // namespace

Result<KeyAndRequest> MakeCertificateRequest(const Identity& identity) {
  MUSTER_ASSIGN_OR_RETURN(const KeyPtr key, GenerateKey());
  KeyAndRequest result;
  MUSTER_ASSIGN_OR_RETURN(result.key_pem, ToPem(key.get()));
  MUSTER_ASSIGN_OR_RETURN(result.csr_pem, RequestWith(identity, key.get()));
  return result;
}

Result<std::string> MakeRequestFor(const Identity& identity, const std::string& key_pem) {
  MUSTER_ASSIGN_OR_RETURN(const KeyPtr key, PrivateKeyFromPem(key_pem));
  return RequestWith(identity, key.get());
}

Status CheckCertificateRequest(const std::string& csr_pem) {
  MUSTER_ASSIGN_OR_RETURN(const X509RequestPtr request, RequestFromPem(csr_pem));
  const OpenSslErrors errors;
  EVP_PKEY* key = X509_REQ_get0_pubkey(request.get());
  if (key == nullptr || !IsP256(key))
    return InvalidArgument("the request's key is not ECDSA on P-256; make the request with Muster");
  if (X509_REQ_verify(request.get(), key) != 1)
    return InvalidArgument("the request is not signed with the key that it is for");
  return OkStatus();
}

Result<std::string> KeyOfRequest(const std::string& csr_pem) {
  MUSTER_RETURN_IF_ERROR(CheckCertificateRequest(csr_pem));
  MUSTER_ASSIGN_OR_RETURN(const X509RequestPtr request, RequestFromPem(csr_pem));
  const OpenSslErrors errors;
  unsigned char* der = nullptr;
  const int bytes = i2d_PUBKEY(X509_REQ_get0_pubkey(request.get()), &der);
  if (bytes <= 0) return errors.Take(StatusCode::kInternal, "the public key of a request");
  const std::string digest =
      ToHex(Sha256({reinterpret_cast<const char*>(der), static_cast<std::size_t>(bytes)}));
  OPENSSL_free(der);
  return digest;
}

}  // namespace muster
