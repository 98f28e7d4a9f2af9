#include "common/security/enrolment.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "common/base/cluster_paths.h"
#include "common/base/failpoint.h"
#include "common/base/wall_time.h"
#include "common/security/certificate_request.h"
#include "common/security/issued_register.h"

namespace muster {
namespace {

Status CheckMayReturn(const RevocationList& revocations, const Redemption& redemption,
                      std::int64_t now_ms) {
  const Revocation* entry = revocations.Find(redemption.identity);
  if (entry == nullptr) return OkStatus();
  const std::string& node = redemption.identity.name;
  if (redemption.for_any_node || redemption.made_ms <= entry->revoked_ms)
    return PermissionDenied("node " + node + " was revoked at " + UtcTime(entry->revoked_ms) +
                            "; to let it in again, make a token for it: muster certs join-token "
                            "--node " +
                            node);
  // Its certificate would be of the second of the revocation, and refused with those from before.
  if (now_ms / 1000 <= entry->revoked_ms / 1000)
    return Unavailable("node " + node + " was revoked just now; try again in a second");
  return OkStatus();
}

}  // namespace

// Decides of the redemptions of one batch, with what there is when the book is locked.
class Enrolment::Admission {
 public:
  Admission(const Enrolment& enrolment, std::int64_t now_ms)
      : enrolment_(enrolment), paths_{enrolment.security_dir_}, now_ms_(now_ms) {}

  Result<std::string> Admit(const std::string& csr_pem, const Redemption& redemption) {
    // The book that is locked may be a new authority's, and its token then not for us to use up.
    if (!in_force_) in_force_ = enrolment_.authority_.CheckInForce();
    MUSTER_RETURN_IF_ERROR(*in_force_);
    if (!revocations_) revocations_ = LoadRevocations(paths_.RevokedCertificates());
    if (!revocations_->ok()) return revocations_->status();
    MUSTER_RETURN_IF_ERROR(CheckMayReturn(**revocations_, redemption, now_ms_));
    if (!redemption.certificate_pem.empty()) return Again(redemption);
    if (redemption.for_any_node) MUSTER_RETURN_IF_ERROR(CheckNameIsFree(redemption.identity));
    MUSTER_ASSIGN_OR_RETURN(std::string certificate,
                            enrolment_.authority_.SignUnrecorded(
                                csr_pem, redemption.identity, enrolment_.node_lifetime_, now_ms_));
    given_.insert(redemption.identity.name);
    return certificate;
  }

 private:
  Result<std::string> Again(const Redemption& redemption) const {
    MUSTER_ASSIGN_OR_RETURN(const CertificateInfo before,
                            ReadCertificate(redemption.certificate_pem));
    MUSTER_RETURN_IF_ERROR((*revocations_)->Check(before));
    if (before.not_after_ms > now_ms_) return redemption.certificate_pem;
    return PermissionDenied("the certificate that node " + redemption.identity.name +
                            " got for this join token has expired; make another token with "
                            "muster certs join-token");
  }

  // A token for any node is for nodes that are not known yet: it cannot take another node's name.
  Status CheckNameIsFree(const Identity& identity) {
    if (!issued_) issued_ = ReadIssued(paths_.IssuedCertificates());
    if (!issued_->ok()) return issued_->status();
    const bool taken = std::ranges::any_of(**issued_, [&](const CertificateInfo& certificate) {
      return certificate.identity == identity && certificate.not_after_ms > now_ms_;
    });
    if (!taken && !given_.contains(identity.name)) return OkStatus();
    return PermissionDenied("there is a node " + identity.name +
                            " already; make a token for it by name: muster certs join-token "
                            "--node " +
                            identity.name);
  }

  const Enrolment& enrolment_;
  const SecurityPaths paths_;
  const std::int64_t now_ms_;
  std::optional<Status> in_force_;
  std::optional<Result<RevocationList>> revocations_;
  std::optional<Result<std::vector<CertificateInfo>>> issued_;
  std::set<std::string> given_;
};

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

std::vector<Result<std::string>> Enrolment::Join(std::span<const JoinRequest> requests,
                                                 std::int64_t now_ms) const {
  std::vector<Result<std::string>> certificates;
  std::vector<JoinClaim> claims;
  std::vector<std::size_t> claimants;  // which request a claim is of
  for (const JoinRequest& request : requests) {
    Result<std::string> key = KeyOfRequest(request.csr_pem);
    if (key.ok()) {
      claims.push_back({request.token_id, request.secret, request.node, *key});
      claimants.push_back(certificates.size());
    }
    certificates.push_back(std::move(key));
  }
  Admission admission(*this, now_ms);
  const auto outcomes =
      book_.Redeem(claims, now_ms, [&](std::size_t claim, const Redemption& redemption) {
        return admission.Admit(requests[claimants[claim]].csr_pem, redemption);
      });
  const std::string revoked = SecurityPaths{security_dir_}.RevokedCertificates();
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Result<Redemption>& outcome = outcomes[i];
    const Status status =
        outcome.ok() ? Readmit(revoked, outcome->identity, now_ms) : outcome.status();
    certificates[claimants[i]] =
        status.ok() ? Result<std::string>(outcome->certificate_pem) : Result<std::string>(status);
  }
  Failpoint("enrol.redeemed");
  Record(certificates, now_ms);
  return certificates;
}

Result<std::string> Enrolment::SignRenewal(const RenewRequest& request,
                                           const RevocationList& revocations,
                                           std::int64_t now_ms) const {
  const CertificateInfo& presented = request.presented;
  if (presented.identity.role != Role::kNode)
    return PermissionDenied(
        "only nodes renew their certificates themselves; type: muster certs "
        "issue --role " +
        std::string(RoleWord(presented.identity.role)));
  if (now_ms >= presented.not_after_ms)
    return Unauthenticated("the certificate of " + IdentityUri(presented.identity) +
                           " has expired; join again with a token");
  MUSTER_RETURN_IF_ERROR(revocations.Check(presented));
  return authority_.SignUnrecorded(request.csr_pem, presented.identity, node_lifetime_, now_ms);
}

std::vector<Result<std::string>> Enrolment::Renew(std::span<const RenewRequest> requests,
                                                  std::int64_t now_ms) const {
  const Status in_force = authority_.CheckInForce();
  const Result<RevocationList> revocations =
      in_force.ok() ? LoadRevocations(SecurityPaths{security_dir_}.RevokedCertificates())
                    : Result<RevocationList>(in_force);
  std::vector<Result<std::string>> certificates;
  for (const RenewRequest& request : requests)
    certificates.push_back(revocations.ok() ? SignRenewal(request, *revocations, now_ms)
                                            : Result<std::string>(revocations.status()));
  Record(certificates, now_ms);
  return certificates;
}

void Enrolment::Record(std::vector<Result<std::string>>& certificates, std::int64_t now_ms) const {
  std::vector<std::string> made;
  for (const Result<std::string>& certificate : certificates)
    if (certificate.ok()) made.push_back(*certificate);
  if (made.empty()) return;
  const Status recorded = authority_.Record(made, now_ms);
  if (recorded.ok()) return;
  for (Result<std::string>& certificate : certificates)
    if (certificate.ok()) certificate = recorded;
}

}  // namespace muster
