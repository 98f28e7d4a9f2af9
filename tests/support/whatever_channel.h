// A channel of gRPC that shows a certificate no program of ours would show. For tests; any thread.
#pragma once

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/rpc/channel.h"
#include "common/security/credentials.h"
#include "common/security/identity.h"

namespace muster {

// As OpenTlsChannel, but shows what it was given, whatever that says.
inline std::shared_ptr<grpc::Channel> OpenWhateverItIs(const std::string& address,
                                                       const std::string& ca_pem,
                                                       const std::string& key_pem,
                                                       const std::string& cert_pem) {
  namespace tls = grpc::experimental;
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<tls::StaticDataCertificateProvider>(
      ca_pem, std::vector<tls::IdentityKeyCertPair>{{key_pem, cert_pem}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  grpc::ChannelArguments args = ChannelArguments();
  args.SetSslTargetNameOverride(kCoordinatorServerName);
  return grpc::CreateCustomChannel(address, tls::TlsCredentials(options), args);
}

// The same of a directory, expired certificates too.
inline std::shared_ptr<grpc::Channel> OpenWhateverItIs(const std::string& address,
                                                       const std::string& ca_pem,
                                                       const std::string& own_dir) {
  const auto own = LoadCredentials(own_dir);
  EXPECT_TRUE(own.ok()) << own.status().ToString();
  return OpenWhateverItIs(address, ca_pem, own->key_pem, own->cert_pem);
}

}  // namespace muster
