#include "coordinator/service/authenticator.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/peer_certificate.h"
#include "common/rpc/token.h"
#include "common/security/encoding.h"
#include "coordinator/service/authorization.h"

namespace muster {
namespace {

std::string UserName() {
  passwd entry;
  passwd* found = nullptr;
  std::array<char, 4096> buffer;
  const uid_t uid = ::geteuid();
  ::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  return found != nullptr ? found->pw_name : "uid-" + std::to_string(uid);
}

std::string NewBoot() {
  const Result<std::string> bytes = RandomBytes(4);
  MUSTER_CHECK(bytes.ok(), bytes.status().message());
  return ToHex(*bytes);
}

}  // namespace

Actor ActorOf(const Identity& identity) {
  if (identity.role == Role::kUser) return {.kind = Actor::Kind::kUser, .name = identity.name};
  if (identity.role == Role::kAdmin) return {.kind = Actor::Kind::kAdmin, .name = identity.name};
  return {.name = std::string(RoleWord(identity.role)) + "/" + identity.name};
}

Authenticator::Authenticator(std::string token, std::string cluster, const Clock& clock)
    : token_(std::move(token)),
      cluster_(std::move(cluster)),
      clock_(clock),
      local_user_(UserName()),
      boot_(NewBoot()) {}

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

Status Authenticator::CheckMayStay(const std::optional<CertificateInfo>& peer) const {
  if (!peer) return CheckTokenAdmits();
  constexpr auto kSkewMs = std::chrono::duration_cast<std::chrono::milliseconds>(kClockSkew);
  if (clock_.UnixMillis() >= peer->not_after_ms + kSkewMs.count())
    return Unauthenticated("the certificate of " + IdentityUri(peer->identity) +
                           " by which this connection was made has expired; connect with a "
                           "renewed one");
  return CheckRevoked(*peer);
}

grpc::Status Authenticator::Process(const InputMetadata& metadata, grpc::AuthContext* context,
                                    OutputMetadata*, OutputMetadata*) {
  const auto path = metadata.find(":path");
  const std::string_view method = path == metadata.end()
                                      ? std::string_view()
                                      : std::string_view(path->second.data(), path->second.size());
  const Status admitted = Admit(method, *context);
  if (!admitted.ok() && on_refusal_ && HasCertificate(*context)) {
    const std::optional<CertificateInfo> peer = ReadOnce(*context);
    on_refusal_({.actor = peer ? ActorOf(peer->identity) : Actor(),
                 .operation = std::string(method.substr(method.rfind('/') + 1)),
                 .object = "",
                 .status = admitted});
  }
  return ToGrpcStatus(admitted);
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

std::optional<CertificateInfo> Authenticator::ReadOnce(const grpc::AuthContext& context) const {
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

Status Authenticator::CheckTokenAdmits() const {
  if (!has_users_) return OkStatus();
  return Unauthenticated(
      "this cluster has users, and admits nobody by its token; name the coordinator's address and "
      "your credentials with --coordinator and --tls");
}

grpc::Status Authenticator::Check(const grpc::CallbackServerContext& context) const {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth != nullptr && IsTls(*auth)) {
    if (on_admission_) on_admission_(context.peer());
    return grpc::Status::OK;
  }
  if (const Status admits = CheckTokenAdmits(); !admits.ok()) return ToGrpcStatus(admits);
  return CheckToken(context, token_);
}

Result<Actor> Authenticator::Identify(const grpc::CallbackServerContext& context) const {
  if (const grpc::Status status = Check(context); !status.ok()) return FromGrpcStatus(status);
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  Actor actor{.kind = Actor::Kind::kAdmin, .name = local_user_};
  if (auth != nullptr && IsTls(*auth)) {
    const std::optional<CertificateInfo> peer = ReadOnce(*auth);
    if (!peer) return Unauthenticated("the certificate is not one of a Muster authority");
    actor = ActorOf(peer->identity);
  }
  actor.peer = context.peer();
  actor.request = boot_ + "-" + std::to_string(next_request_++);
  const auto& metadata = context.client_metadata();
  if (const auto as = metadata.find(kAsUserKey); as != metadata.end())
    actor.as_user.assign(as->second.data(), as->second.size());
  return actor;
}

Result<std::string> Authenticator::NodeOf(const grpc::CallbackServerContext& context,
                                          const std::string& named) const {
  if (const grpc::Status status = Check(context); !status.ok()) return FromGrpcStatus(status);
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth == nullptr || !IsTls(*auth)) return named;
  const std::optional<CertificateInfo> peer = ReadOnce(*auth);
  const bool same = peer && (named.empty() || peer->identity.name == named);
  if (same && peer->identity.role == Role::kNode) return peer->identity.name;
  return PermissionDenied("the certificate is not that of node '" + named + "'");
}

}  // namespace muster
