#include "coordinator/service/doorkeeper.h"

#include <grpc/grpc_security_constants.h>

#include <string_view>
#include <utility>

#include "common/rpc/grpc_status.h"
#include "common/rpc/token.h"
#include "coordinator/service/authorization.h"

namespace muster {
namespace {

std::string_view FirstProperty(const grpc::AuthContext& context, const std::string& name) {
  const std::vector<grpc::string_ref> values = context.FindPropertyValues(name);
  return values.empty() ? std::string_view()
                        : std::string_view(values.front().data(), values.front().size());
}

}  // namespace

Doorkeeper::Doorkeeper(std::string token, std::string cluster, const Clock& clock)
    : token_(std::move(token)), cluster_(std::move(cluster)), clock_(clock) {}

void Doorkeeper::SetRevocations(RevocationList list) {
  auto shared = std::make_shared<const RevocationList>(std::move(list));
  const std::lock_guard lock(mutex_);
  revoked_ = std::move(shared);
}

Status Doorkeeper::CheckRevoked(const CertificateInfo& certificate) const {
  std::shared_ptr<const RevocationList> revoked;
  {
    const std::lock_guard lock(mutex_);
    revoked = revoked_;
  }
  return revoked->Check(certificate);
}

grpc::Status Doorkeeper::Process(const InputMetadata& metadata, grpc::AuthContext* context,
                                 OutputMetadata*, OutputMetadata*) {
  const auto path = metadata.find(":path");
  const std::string_view method = path == metadata.end()
                                      ? std::string_view()
                                      : std::string_view(path->second.data(), path->second.size());
  return ToGrpcStatus(Admit(method, *context));
}

Status Doorkeeper::Admit(std::string_view method, const grpc::AuthContext& context) {
  const bool has_certificate = !FirstProperty(context, GRPC_X509_PEM_CERT_PROPERTY_NAME).empty();
  if (!has_certificate) {
    MUSTER_RETURN_IF_ERROR(Authorize(method, Caller::kNobody));
    const std::lock_guard lock(mutex_);
    if (!unknown_.Take(clock_.Now()))
      return ResourceExhausted("too many want to join at once; try again in a second");
    return OkStatus();
  }
  const std::optional<CertificateInfo> peer = PeerOf(context);
  if (!peer) return Unauthenticated("the certificate is not one of a Muster authority");
  if (peer->identity.cluster != cluster_)
    return Unauthenticated("the certificate is one of the cluster '" + peer->identity.cluster +
                           "', this is '" + cluster_ + "'");
  // Both may have come about since the handshake.
  if (peer->not_after_ms <= clock_.UnixMillis())
    return Unauthenticated("the certificate of " + IdentityUri(peer->identity) +
                           " has expired; connect with a renewed one");
  MUSTER_RETURN_IF_ERROR(CheckRevoked(*peer));
  return Authorize(method, CallerOf(peer->identity.role));
}

grpc::Status Doorkeeper::Check(const grpc::CallbackServerContext& context) const {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth != nullptr && IsTls(*auth)) return grpc::Status::OK;
  return CheckToken(context, token_);
}

std::optional<CertificateInfo> Doorkeeper::PeerOf(const grpc::AuthContext& context) {
  const std::string_view pem = FirstProperty(context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (pem.empty()) return std::nullopt;
  const Result<CertificateInfo> info = ReadCertificate(std::string(pem));
  if (!info.ok()) return std::nullopt;
  return *info;
}

bool Doorkeeper::IsTls(const grpc::AuthContext& context) {
  return FirstProperty(context, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME) ==
         GRPC_TLS_TRANSPORT_SECURITY_TYPE;
}

}  // namespace muster
