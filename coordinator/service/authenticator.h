// Authenticator: checks every call over TLS before its first message is read. It refuses clients
// that authorization.h does not allow, certificates that were revoked since the connection was
// made, and certificates that have expired in the meantime. On loopback and Unix sockets it checks
// the cluster's token.
//
// Whom a call speaks for (Identify) follows from its certificate; with the token, from the user
// that this process runs as.
//
// Shared by the gRPC server and the services. Any thread: gRPC calls Process on its own; a mutex
// guards what changes. Never blocks.
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/server_context.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "common/base/clock.h"
#include "common/security/certificate.h"
#include "common/security/revocation.h"
#include "coordinator/access/actor.h"
#include "coordinator/control/events.h"
#include "coordinator/service/token_bucket.h"

namespace muster {

// Whom a certificate speaks for. Only a user's or an admin's gives an actor that may do anything.
Actor ActorOf(const Identity& identity);

class Authenticator final : public grpc::AuthMetadataProcessor {
 public:
  // Rate of calls without a certificate, of all callers together. Each may have a message of the
  // largest size before it can be refused.
  static constexpr double kUnknownAtOnce = 256;
  static constexpr double kUnknownPerSecond = 64;
  static constexpr std::size_t kMostRead = 16'384;

  // `token` is the cluster's; `cluster` the name in its certificates, empty without TLS.
  Authenticator(std::string token, std::string cluster, const Clock& clock);

  // In the certificates; empty without TLS.
  const std::string& cluster() const { return cluster_; }

  void SetRevocations(RevocationList list);
  // OK, or when and why this certificate was revoked.
  Status CheckRevoked(const CertificateInfo& certificate) const;
  // Whether a call that this peer has opened may continue: not if its certificate is revoked, or
  // has been expired for longer than clocks differ (kClockSkew); a node has renewed by then and
  // reconnects. A peer without one came with the token, which admits none once there are users.
  Status CheckMayStay(const std::optional<CertificateInfo>& peer) const;

  // For gRPC, for calls over TLS.
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;
  bool IsBlocking() const override { return false; }

  // Calls that Process refuses, but for those without a certificate. Set before the server listens;
  // called on gRPC's threads.
  void OnRefusal(std::function<void(RequestNoted)> sink) { on_refusal_ = std::move(sink); }
  // Gets the peer (grpc::ServerContext::peer) of each call over TLS that a service takes. Set
  // before the server listens; called on gRPC's threads.
  void OnAdmission(std::function<void(const std::string& peer)> sink) {
    on_admission_ = std::move(sink);
  }
  // While the cluster has users, its token admits no caller.
  void SetHasUsers(bool has_users) { has_users_ = has_users; }

  // Who makes the call, by any listener; fails as Check.
  Result<Actor> Identify(const grpc::CallbackServerContext& context) const;

  // The node that makes the call: by certificate the one that it names, which must be `named`; with
  // the token `named`. Fails as Check.
  Result<std::string> NodeOf(const grpc::CallbackServerContext& context,
                             const std::string& named) const;

  // For the services, for calls by any listener: Process has accepted those over TLS, others need
  // the token.
  grpc::Status Check(const grpc::CallbackServerContext& context) const;

 private:
  Status CheckTokenAdmits() const;
  Status Admit(std::string_view method, const grpc::AuthContext& context);
  // As PeerCertificate, which takes longer than most calls.
  std::optional<CertificateInfo> ReadOnce(const grpc::AuthContext& context) const;

  const std::string token_;
  const std::string cluster_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::shared_ptr<const RevocationList> revoked_ = std::make_shared<const RevocationList>();
  TokenBucket unknown_{kUnknownAtOnce, kUnknownPerSecond};
  // Certificates by their text: what each says never changes. At most kMostRead.
  mutable std::unordered_map<std::string, CertificateInfo> read_;
  const std::string local_user_;
  const std::string boot_;  // begins the ids of requests
  mutable std::atomic<std::uint64_t> next_request_ = 1;
  std::atomic<bool> has_users_ = false;
  std::function<void(RequestNoted)> on_refusal_;
  std::function<void(const std::string&)> on_admission_;
};

}  // namespace muster
