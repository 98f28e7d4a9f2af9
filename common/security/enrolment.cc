#include "common/security/enrolment.h"

#include "common/base/cluster_paths.h"
#include "common/security/certificate_request.h"
#include "common/security/encoding.h"
#include "common/security/issued_register.h"
#include "common/security/revocation.h"

namespace muster {
namespace {

// A token for any node is for nodes that nobody knows yet: with it, nobody takes another's name.
Status CheckNameIsFree(const std::string& register_path, const Identity& identity,
                       std::int64_t now_ms) {
  MUSTER_ASSIGN_OR_RETURN(const auto issued, ReadIssued(register_path));
  for (const CertificateInfo& certificate : issued)
    if (certificate.identity == identity && certificate.not_after_ms > now_ms)
      return PermissionDenied("there is a node " + identity.name +
                              " already; make a token for it by name: muster certs join-token "
                              "--node " +
                              identity.name);
  return OkStatus();
}

Status CheckMayReturn(const RevocationList& revocations, const Redemption& redemption) {
  const Revocation* entry = revocations.Find(redemption.identity);
  if (entry == nullptr || (!redemption.for_any_node && redemption.made_ms > entry->revoked_ms))
    return OkStatus();
  return PermissionDenied("node " + redemption.identity.name + " was revoked at " +
                          UtcTime(entry->revoked_ms) +
                          "; to let it in again, make a token for it: muster certs join-token "
                          "--node " +
                          redemption.identity.name);
}

}  // namespace

Enrolment::Enrolment(std::string security_dir, CertificateAuthority authority,
                     Duration node_lifetime)
    : security_dir_(std::move(security_dir)),
      authority_(std::move(authority)),
      book_(SecurityPaths{security_dir_}.JoinTokens(), authority_.cluster()),
      node_lifetime_(node_lifetime) {}

Result<Enrolment> Enrolment::Open(const std::string& security_dir, Duration node_lifetime) {
  MUSTER_ASSIGN_OR_RETURN(CertificateAuthority authority, CertificateAuthority::Open(security_dir));
  return Enrolment(security_dir, std::move(authority), node_lifetime);
}

Result<std::string> Enrolment::MakeToken(const std::string& node, Duration lifetime,
                                         std::int64_t now_ms) const {
  MUSTER_ASSIGN_OR_RETURN(const JoinToken token,
                          book_.Make(node, lifetime, authority_.certificate_pem(), now_ms));
  return EncodeJoinToken(token);
}

Result<std::string> Enrolment::Join(const JoinRequest& request, std::int64_t now_ms) const {
  const SecurityPaths paths{security_dir_};
  MUSTER_RETURN_IF_ERROR(CheckCertificateRequest(request.csr_pem));
  const auto admit = [&](const Redemption& redemption) -> Status {
    MUSTER_ASSIGN_OR_RETURN(const auto revocations, LoadRevocations(paths.RevokedCertificates()));
    MUSTER_RETURN_IF_ERROR(CheckMayReturn(revocations, redemption));
    if (!redemption.for_any_node) return OkStatus();
    return CheckNameIsFree(paths.IssuedCertificates(), redemption.identity, now_ms);
  };
  MUSTER_ASSIGN_OR_RETURN(
      const Redemption redemption,
      book_.Redeem(request.token_id, request.secret, request.node, now_ms, admit));
  MUSTER_RETURN_IF_ERROR(Readmit(paths.RevokedCertificates(), redemption.identity, now_ms));
  return authority_.SignRequest(request.csr_pem, redemption.identity, node_lifetime_, now_ms);
}

Result<std::string> Enrolment::Renew(const CertificateInfo& presented, const std::string& csr_pem,
                                     std::int64_t now_ms) const {
  if (presented.identity.role != Role::kNode)
    return PermissionDenied(
        "only nodes renew their certificates themselves; type: muster certs "
        "issue --role " +
        std::string(RoleWord(presented.identity.role)));
  if (now_ms >= presented.not_after_ms)
    return Unauthenticated("the certificate of " + IdentityUri(presented.identity) +
                           " has expired; join again with a token");
  MUSTER_ASSIGN_OR_RETURN(const auto revocations,
                          LoadRevocations(SecurityPaths{security_dir_}.RevokedCertificates()));
  MUSTER_RETURN_IF_ERROR(revocations.Check(presented));
  return authority_.SignRequest(csr_pem, presented.identity, node_lifetime_, now_ms);
}

}  // namespace muster
