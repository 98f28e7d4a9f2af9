// A coordinator with its TLS listeners on loopback, and an authority beside it whose credentials
// tests hold of every kind. Tests only; one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "common/rpc/tls.h"
#include "common/security/revocation.h"
#include "tests/support/cluster_credentials.h"
#include "tests/support/coordinator_harness.h"
#include "tests/support/whatever_channel.h"

namespace muster {

class TlsServerTest : public ServerTest {
 protected:
  TlsServerTest() : ours_(dir_) {
    ours_.Write(ours_.security_dir() + "/coordinator", Role::kCoordinator, "coordinator");
  }

  void StartTlsServer() {
    ServerOptions options = Options();
    options.tls_listen = "127.0.0.1:0";
    options.tls_http = "127.0.0.1:0";
    // Nodes join where the authority's key is.
    if (std::filesystem::exists(ours_.security_dir() + "/ca.key"))
      options.join_listen = "127.0.0.1:0";
    StartServer(std::move(options));
  }
  const std::string& Door() const { return server_->endpoint().grpc_tls; }

  const std::string& JoinDoor() const { return server_->endpoint().grpc_join; }

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
