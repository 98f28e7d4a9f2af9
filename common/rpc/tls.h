// TLS 1.3 with certificates on both sides, for gRPC between machines.
//
// A server follows its credentials directory (common/security/credentials.h) by DIR/serving.pem,
// which the process that renews or watches the credentials keeps up to date, and where that cannot
// be written by the files themselves: within a few seconds of a renewal new connections are shown
// the new certificate, and those that are there live on. A client reads its directory whenever it
// opens a channel. Neither has a setting not to verify.
//
// Nothing here resolves or compares host names: a client believes a server whose certificate the
// cluster's authority has signed for `coordinator.muster`. gRPC 1.51's C++ API has no lowest
// version. So versions before 1.3 are refused by the only cipher that is offered for them: one of
// RSA keys, which no certificate of ours has. gRPC takes it from GRPC_SSL_CIPHER_SUITES, which is
// set before main, while the program has one thread.
//
// Free functions; any thread. Loading blocks for three small files.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/rpc/endpoint.h"

namespace muster {

enum class ClientCertificate {
  kRequired,  // the handshake refuses a client without a valid certificate
  kNone,      // the server asks for no certificate: for the port where nodes join
};

// `processor` decides of each call, before its first message is read; it must not block.
// `clients_root`: a file with the authority that clients' certificates go back to; empty: DIR's.
Result<std::shared_ptr<grpc::ServerCredentials>> TlsServerCredentials(
    const std::string& dir, std::shared_ptr<grpc::AuthMetadataProcessor> processor,
    ClientCertificate client = ClientCertificate::kRequired, const std::string& clients_root = "");

// A channel to a coordinator, with the certificate in `dir`. kFailedPrecondition when that has
// expired: it would be refused without a reason.
Result<std::shared_ptr<grpc::Channel>> OpenTlsChannel(const std::string& address,
                                                      const std::string& dir);

// The same without a certificate, for a node that joins: accepts a server with one of `ca_pem`.
std::shared_ptr<grpc::Channel> OpenTlsChannelToJoin(const std::string& address,
                                                    const std::string& ca_pem);

// How a client comes to a coordinator.
struct CoordinatorChannel {
  std::shared_ptr<grpc::Channel> channel;
  std::string address;
  std::string token;  // to attach to each call; empty: TLS identifies the caller
};

// By TLS where there are credentials (`tls_dir`) and a coordinator that listens so, else by the
// token at `token_path`, in plain text. With credentials, plain text is spoken on loopback and Unix
// sockets only: a process that has them is on a network that others share.
Result<CoordinatorChannel> OpenCoordinator(const Endpoint& endpoint, const std::string& tls_dir,
                                           const std::string& token_path);

// Does nothing for an empty token.
void AttachToken(grpc::ClientContext& context, const CoordinatorChannel& coordinator);

}  // namespace muster
