#include "common/security/loopback_credentials.h"

#include "common/security/certificate_builder.h"
#include "common/security/pem.h"

namespace muster {

Result<LoopbackCredentials> MakeLoopbackCredentials(const std::string& name, std::int64_t now_ms) {
  MUSTER_ASSIGN_OR_RETURN(const KeyPtr key, GenerateKey());
  const std::int64_t lifetime_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(kAuthorityLifetime).count();
  MUSTER_ASSIGN_OR_RETURN(
      const X509Ptr certificate,
      BuildLoopbackCertificate(key.get(), name, {now_ms, now_ms + lifetime_ms}));
  LoopbackCredentials made;
  MUSTER_ASSIGN_OR_RETURN(made.certificate_pem, ToPem(certificate.get()));
  MUSTER_ASSIGN_OR_RETURN(made.key_pem, ToPem(key.get()));
  return made;
}

}  // namespace muster
