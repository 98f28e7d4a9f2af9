// Enrolment: how nodes come by certificates, as the coordinator decides it. The RPCs are thin
// around it: they take what the node sent, and what TLS knows of it, and give back what is said
// here. Many nodes that come at once share the waits for the disk.
//
// Owned by the coordinator, or made for a command. Any thread; all functions block on the disk.
// Times are milliseconds since the Unix epoch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/security/certificate_authority.h"
#include "common/security/join_token_register.h"
#include "common/security/revocation.h"

namespace muster {

struct JoinRequest {
  std::string token_id;
  std::string secret;  // the token's 32 bytes
  std::string node;
  std::string csr_pem;
};

struct RenewRequest {
  CertificateInfo presented;  // that the caller showed and TLS verified
  std::string csr_pem;
};

class Enrolment {
 public:
  // `security_dir` is DIR/security of a cluster, or any directory with an authority.
  static Result<Enrolment> Open(const std::string& security_dir,
                                Duration node_lifetime = DefaultLifetime(Role::kNode));

  const CertificateAuthority& authority() const { return authority_; }

  // A token for a node, or for any where `node` is "". One for a revoked node is its readmission.
  Result<std::string> MakeToken(const std::string& node, Duration lifetime,
                                std::int64_t now_ms) const;

  // The nodes' certificates, in the order of the requests; one key per token, and for the same key
  // again the same certificate. A request that would not be signed uses up no token. A revoked node
  // comes back only by a token that was made for it after it was revoked.
  std::vector<Result<std::string>> Join(std::span<const JoinRequest> requests,
                                        std::int64_t now_ms) const;

  // The next certificates of nodes that have one, in the order of the requests. Reads the
  // revocations again: a node cannot renew past its revocation.
  std::vector<Result<std::string>> Renew(std::span<const RenewRequest> requests,
                                         std::int64_t now_ms) const;

 private:
  class Admission;
  Enrolment(std::string security_dir, CertificateAuthority authority, Duration node_lifetime);
  Result<std::string> SignRenewal(const RenewRequest& request, const RevocationList& revocations,
                                  std::int64_t now_ms) const;
  // Registers the certificates; where that fails, none is handed out.
  void Record(std::vector<Result<std::string>>& certificates, std::int64_t now_ms) const;

  std::string security_dir_;
  CertificateAuthority authority_;
  JoinTokenRegister book_;
  Duration node_lifetime_;
};

}  // namespace muster
