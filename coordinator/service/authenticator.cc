#include "coordinator/service/authenticator.h"

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "common/rpc/grpc_status.h"
#include "common/rpc/peer_certificate.h"
#include "common/rpc/token.h"
#include "coordinator/service/authorization.h"

namespace muster {

Authenticator::Authenticator(std::string token, std::string cluster, const Clock& clock)
    : token_(std::move(token)), cluster_(std::move(cluster)), clock_(clock) {}

void Authenticator::SetRevocations(RevocationList list) {
  auto shared = std::make_shared<const RevocationList>(std::move(list));
  const std::lock_guard lock(mutex_);
  revoked_ = std::move(shared);
}

Status Authenticator::CheckRevoked(const CertificateInfo& certificate) const {
  std::shared_ptr<const RevocationList> revoked;
  {
    const std::lock_guard lock(mutex_);
    revoked = revoked_;
  }
  return revoked->Check(certificate);
}

Status Authenticator::CheckMayStay(const CertificateInfo& certificate) const {
  constexpr auto kSkewMs = std::chrono::duration_cast<std::chrono::milliseconds>(kClockSkew);
  if (clock_.UnixMillis() >= certificate.not_after_ms + kSkewMs.count())
    return Unauthenticated("the certificate of " + IdentityUri(certificate.identity) +
                           " by which this connection was made has expired; connect with a "
                           "renewed one");
  return CheckRevoked(certificate);
}

grpc::Status Authenticator::Process(const InputMetadata& metadata, grpc::AuthContext* context,
                                    OutputMetadata*, OutputMetadata*) {
  const auto path = metadata.find(":path");
  const std::string_view method = path == metadata.end()
                                      ? std::string_view()
                                      : std::string_view(path->second.data(), path->second.size());
  return ToGrpcStatus(Admit(method, *context));
}

Status Authenticator::Admit(std::string_view method, const grpc::AuthContext& context) {
  if (!HasCertificate(context)) {
    MUSTER_RETURN_IF_ERROR(Authorize(method, Caller::kNobody));
    const std::lock_guard lock(mutex_);
    if (!unknown_.Take(clock_.Now()))
      return ResourceExhausted("too many want to join at once; try again in a second");
    return OkStatus();
  }
  const std::optional<CertificateInfo> peer = ReadOnce(context);
  if (!peer) return Unauthenticated("the certificate is not one of a Muster authority");
  if (peer->identity.cluster != cluster_)
    return Unauthenticated("the certificate is one of the cluster '" + peer->identity.cluster +
                           "', this is '" + cluster_ + "'");
  // Both may have happened since the handshake.
  if (peer->not_after_ms <= clock_.UnixMillis())
    return Unauthenticated("the certificate of " + IdentityUri(peer->identity) +
                           " has expired; connect with a renewed one");
  MUSTER_RETURN_IF_ERROR(CheckRevoked(*peer));
  return Authorize(method, CallerOf(peer->identity.role));
}

std::optional<CertificateInfo> Authenticator::ReadOnce(const grpc::AuthContext& context) {
  std::string text(CertificateText(context));
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = read_.find(text); known != read_.end()) return known->second;
  }
  std::optional<CertificateInfo> info = PeerCertificate(context);
  if (!info) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (read_.size() >= kMostRead) read_.clear();
  read_.emplace(std::move(text), *info);
  return info;
}

grpc::Status Authenticator::Check(const grpc::CallbackServerContext& context) const {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth != nullptr && IsTls(*auth)) return grpc::Status::OK;
  return CheckToken(context, token_);
}

}  // namespace muster
