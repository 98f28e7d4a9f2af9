#include "common/rpc/tls.h"

#include <absl/synchronization/mutex.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <stdlib.h>

#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/token.h"
#include "common/security/credentials.h"

namespace muster {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned kReloadSeconds = 1;

// gRPC reads the variable once, with its first TLS credentials. Ciphers of 1.3 are not of this
// list. Before main no other thread can read the environment meanwhile.
[[maybe_unused]] const int kOlderProtocolsAreRefused =
    ::setenv("GRPC_SSL_CIPHER_SUITES", "ECDHE-RSA-AES256-GCM-SHA384", 1);

// Distributions ship Abseil as a debug build, which checks the order of gRPC's locks under one lock
// of the whole process. TSan does the same for those who look for deadlocks.
[[maybe_unused]] const bool kLockOrderIsNotChecked = [] {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return true;
}();

std::shared_ptr<grpc::Channel> OpenVerified(const std::string& address, const std::string& ca_pem,
                                            std::vector<tls::IdentityKeyCertPair> own) {
  const bool has_own = !own.empty();
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<tls::StaticDataCertificateProvider>(ca_pem, std::move(own)));
  options.watch_root_certs();
  if (has_own) options.watch_identity_key_cert_pairs();
  // Where clients have no certificate a server permits no pings; their calls have short deadlines.
  grpc::ChannelArguments args =
      ChannelArguments(has_own ? Pings::kWhileCallsAreOpen : Pings::kNone);
  args.SetSslTargetNameOverride(kCoordinatorServerName);
  return grpc::CreateCustomChannel(address, tls::TlsCredentials(options), args);
}

}  // namespace

Result<std::shared_ptr<grpc::ServerCredentials>> TlsServerCredentials(
    const std::string& dir, std::shared_ptr<grpc::AuthMetadataProcessor> processor,
    ClientCertificate client, const std::string& clients_root) {
  MUSTER_CHECK(processor != nullptr, "a TLS port without a processor that authorizes calls");
  // What is wrong with them is said at the start, and not in gRPC's log at each handshake.
  MUSTER_ASSIGN_OR_RETURN(const Credentials credentials, LoadCredentials(dir));
  MUSTER_RETURN_IF_ERROR(CheckNotExpired(credentials, SystemClock().UnixMillis()));
  if (credentials.identity.role != Role::kCoordinator)
    return FailedPrecondition(
        "the certificate in " + dir + " has the role " +
        std::string(RoleWord(credentials.identity.role)) +
        "; clients believe only a coordinator's: use DIR/security/coordinator");
  // One file for both, since they are read one after the other.
  const Result<std::string> both = KeepServingFile(dir, credentials);
  tls::TlsServerCredentialsOptions options(std::make_shared<tls::FileWatcherCertificateProvider>(
      both.ok() ? *both : dir + "/key.pem", both.ok() ? *both : dir + "/cert.pem",
      clients_root.empty() ? dir + "/ca.pem" : clients_root, kReloadSeconds));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(client == ClientCertificate::kRequired
                                    ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                    : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  std::shared_ptr<grpc::ServerCredentials> server = tls::TlsServerCredentials(options);
  server->SetAuthMetadataProcessor(std::move(processor));
  return server;
}

Result<std::shared_ptr<grpc::Channel>> OpenTlsChannel(const std::string& address,
                                                      const std::string& dir) {
  MUSTER_ASSIGN_OR_RETURN(const Credentials credentials, LoadCredentials(dir));
  MUSTER_RETURN_IF_ERROR(CheckNotExpired(credentials, SystemClock().UnixMillis()));
  return OpenVerified(address, credentials.ca_pem, {{credentials.key_pem, credentials.cert_pem}});
}

std::shared_ptr<grpc::Channel> OpenTlsChannelToJoin(const std::string& address,
                                                    const std::string& ca_pem) {
  return OpenVerified(address, ca_pem, {});
}

Result<CoordinatorChannel> OpenCoordinator(const Endpoint& endpoint, const std::string& tls_dir,
                                           const std::string& token_path) {
  if (!tls_dir.empty() && !endpoint.grpc_tls.empty()) {
    MUSTER_ASSIGN_OR_RETURN(auto channel, OpenTlsChannel(endpoint.grpc_tls, tls_dir));
    return CoordinatorChannel{std::move(channel), endpoint.grpc_tls, ""};
  }
  if (endpoint.grpc.empty())
    return Unauthenticated("the coordinator at " + endpoint.grpc_tls +
                           " speaks TLS only; name a directory of credentials with --tls");
  if (!tls_dir.empty() && !CheckListenAddress(endpoint.grpc).ok())
    return PermissionDenied("the coordinator at " + endpoint.grpc +
                            " speaks plain text, in which nothing is sent over a network while "
                            "there are credentials; start it with --tls-listen");
  MUSTER_ASSIGN_OR_RETURN(std::string token, LoadToken(token_path));
  return CoordinatorChannel{OpenChannel(endpoint.grpc), endpoint.grpc, std::move(token)};
}

void AttachToken(grpc::ClientContext& context, const CoordinatorChannel& coordinator) {
  if (!coordinator.token.empty()) AttachToken(context, coordinator.token);
}

}  // namespace muster
