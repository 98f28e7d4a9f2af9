// Authenticator: checks every call over TLS before its first message is read. It refuses clients
// that authorization.h does not allow, certificates that were revoked since the connection was
// made, and certificates that have expired in the meantime. On loopback and Unix sockets it checks
// the cluster's token.
//
// Shared by the gRPC server and the services. Any thread: gRPC calls Process on its own; a mutex
// guards what changes. Never blocks.
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/server_context.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "common/base/clock.h"
#include "common/security/certificate.h"
#include "common/security/revocation.h"
#include "coordinator/service/token_bucket.h"

namespace muster {

class Authenticator final : public grpc::AuthMetadataProcessor {
 public:
  // Rate of calls without a certificate, of all callers together. Each may have a message of the
  // largest size before it can be refused.
  static constexpr double kUnknownAtOnce = 256;
  static constexpr double kUnknownPerSecond = 64;
  static constexpr std::size_t kMostRead = 16'384;

  // `token` is the cluster's; `cluster` the name in its certificates, empty without TLS.
  Authenticator(std::string token, std::string cluster, const Clock& clock);

  void SetRevocations(RevocationList list);
  // OK, or when and why this certificate was revoked.
  Status CheckRevoked(const CertificateInfo& certificate) const;
  // Whether a call that this certificate has opened may continue: not if it is revoked, or has been
  // expired for longer than clocks differ (kClockSkew). A node has renewed by then and reconnects.
  Status CheckMayStay(const CertificateInfo& certificate) const;

  // For gRPC, for calls over TLS.
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;
  bool IsBlocking() const override { return false; }

  // For the services, for calls by any listener: Process has accepted those over TLS, others need
  // the token.
  grpc::Status Check(const grpc::CallbackServerContext& context) const;

 private:
  Status Admit(std::string_view method, const grpc::AuthContext& context);
  // As PeerCertificate, which takes longer than most calls.
  std::optional<CertificateInfo> ReadOnce(const grpc::AuthContext& context);

  const std::string token_;
  const std::string cluster_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::shared_ptr<const RevocationList> revoked_ = std::make_shared<const RevocationList>();
  TokenBucket unknown_{kUnknownAtOnce, kUnknownPerSecond};
  // Certificates by their text: what each says never changes. At most kMostRead.
  std::unordered_map<std::string, CertificateInfo> read_;
};

}  // namespace muster
