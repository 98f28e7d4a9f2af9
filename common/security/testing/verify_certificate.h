// Whether a certificate is trusted, as a peer's TLS decides it. Tests only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/security/certificate.h"
#include "common/security/pem.h"

namespace muster {

enum class Purpose { kClient, kServer };

// OpenSSL's verdict on the chain of the two, or of three.
inline Status VerifyChain(X509* certificate, X509* authority, Purpose purpose, std::int64_t now_ms,
                          X509* between = nullptr) {
  struct FreeStack {
    void operator()(STACK_OF(X509) * stack) const { sk_X509_free(stack); }
  };
  using StackPtr = std::unique_ptr<STACK_OF(X509), FreeStack>;
  using StorePtr = std::unique_ptr<X509_STORE, OpenSslFree<X509_STORE_free>>;
  using ContextPtr = std::unique_ptr<X509_STORE_CTX, OpenSslFree<X509_STORE_CTX_free>>;
  const OpenSslErrors errors;
  const StorePtr store(X509_STORE_new());
  const ContextPtr context(X509_STORE_CTX_new());
  const StackPtr others(sk_X509_new_null());
  if (between != nullptr) sk_X509_push(others.get(), between);
  if (!store || !context || X509_STORE_add_cert(store.get(), authority) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), certificate, others.get()) != 1)
    return errors.Take(StatusCode::kInternal, "verify a certificate");
  X509_VERIFY_PARAM* how = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_time(how, static_cast<time_t>(now_ms / 1000));
  X509_VERIFY_PARAM_set_flags(how, X509_V_FLAG_X509_STRICT);
  X509_VERIFY_PARAM_set_purpose(
      how, purpose == Purpose::kClient ? X509_PURPOSE_SSL_CLIENT : X509_PURPOSE_SSL_SERVER);
  if (X509_verify_cert(context.get()) == 1) return OkStatus();
  return Unauthenticated(X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())));
}

// ReadCertificate's answer, if the certificate is signed by `ca_pem`, valid at `now_ms`, of the
// authority's cluster, and made for `purpose`. kUnauthenticated says what of this does not hold.
inline Result<CertificateInfo> VerifyCertificate(const std::string& certificate_pem,
                                                 const std::string& ca_pem, Purpose purpose,
                                                 std::int64_t now_ms) {
  const auto refused = [](const Status& why) {
    return Unauthenticated("the certificate is refused: " + why.message());
  };
  const auto certificate = CertificateFromPem(certificate_pem);
  if (!certificate.ok()) return refused(certificate.status());
  MUSTER_ASSIGN_OR_RETURN(const X509Ptr authority, CertificateFromPem(ca_pem));
  MUSTER_ASSIGN_OR_RETURN(const AuthorityInfo trusted, ReadAuthority(ca_pem));
  const auto info = ReadCertificate(certificate_pem);
  if (!info.ok()) return refused(info.status());
  const Status chain = VerifyChain(certificate->get(), authority.get(), purpose, now_ms);
  if (!chain.ok()) return refused(chain);
  if (info->identity.cluster != trusted.cluster)
    return Unauthenticated("the certificate is refused: this is cluster " + trusted.cluster);
  return *info;
}

}  // namespace muster
