// A coordinator with its TLS doors open on loopback, and an authority beside it whose credentials
// tests hold of every kind. Tests only; one thread.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <memory>
#include <string>
#include <utility>

#include "common/rpc/tls.h"
#include "common/security/revocation.h"
#include "tests/support/cluster_credentials.h"
#include "tests/support/coordinator_harness.h"

namespace muster {

// As OpenTlsChannel, but shows what it is told to, expired certificates too.
inline std::shared_ptr<grpc::Channel> OpenWhateverItIs(const std::string& address,
                                                       const std::string& ca_pem,
                                                       const std::string& own_dir) {
  namespace tls = grpc::experimental;
  const auto own = LoadCredentials(own_dir);
  EXPECT_TRUE(own.ok()) << own.status().ToString();
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<tls::StaticDataCertificateProvider>(
      ca_pem, std::vector<tls::IdentityKeyCertPair>{{own->key_pem, own->cert_pem}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  grpc::ChannelArguments args = ChannelArguments();
  args.SetSslTargetNameOverride(kCoordinatorServerName);
  return grpc::CreateCustomChannel(address, tls::TlsCredentials(options), args);
}

class TlsServerTest : public ServerTest {
 protected:
  TlsServerTest() : ours_(dir_) {
    ours_.Write(ours_.security_dir() + "/coordinator", Role::kCoordinator, "coordinator");
  }

  void StartTlsServer() {
    ServerOptions options = Options();
    options.tls_listen = "127.0.0.1:0";
    options.tls_http = "127.0.0.1:0";
    StartServer(std::move(options));
  }
  const std::string& Door() const { return server_->endpoint().grpc_tls; }

  std::shared_ptr<grpc::Channel> Channel(const std::string& credentials_dir) {
    auto channel = OpenTlsChannel(Door(), credentials_dir);
    EXPECT_TRUE(channel.ok()) << channel.status().ToString();
    return *channel;
  }

  void RevokeNow(Role role, const std::string& name) {
    const Status status = Revoke(ours_.security_dir() + "/revoked.json",
                                 {.identity = IdentityUri({role, name, ours_.cluster()}),
                                  .revoked_ms = SystemClock().UnixMillis(),
                                  .reason = "a test"});
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  ClusterCredentials ours_;
};

}  // namespace muster
