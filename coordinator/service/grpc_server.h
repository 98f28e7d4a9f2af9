// GrpcServer: the coordinator's gRPC ports with its services behind them.
//
// Owned by the server. Shutdown blocks until every call is finished and may be called from any
// thread while the loop still runs, which finishes them; it must be called before the destructor.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace muster {

class Authenticator;
class EnrolService;
class LoginService;

struct GrpcAddresses {
  // They have been checked: plain text is allowed there.
  std::vector<std::string> plain;
  std::string tls;  // IP:PORT for other machines; empty: none
  // IP:PORT where nodes join and people log in; empty: nowhere. A separate server, because its
  // clients have shown no certificate: bounded, and with no method other than Enrol/Join, Issuers
  // and Login.
  std::string join;
  std::string credentials_dir;
  std::string clients_root;  // as TlsServerCredentials takes it
};

struct GrpcServices {
  std::vector<grpc::Service*> services;
  // Answers the methods that none of `services` has; null: they are unknown.
  grpc::CallbackGenericService* others = nullptr;
  std::unique_ptr<grpc::Service> join;  // at GrpcAddresses::join
  std::shared_ptr<Authenticator> authenticator;
};

// What a client without a certificate may call.
std::unique_ptr<grpc::Service> MakeJoinService(EnrolService& enrolment, LoginService& logins);
// The same at a coordinator that stands by, where people do not log in: `refuse` says where they
// do.
using RefuseLogin = std::function<grpc::Status(grpc::CallbackServerContext& context)>;
std::unique_ptr<grpc::Service> MakeJoinService(EnrolService& enrolment, RefuseLogin refuse);

class GrpcServer {
 public:
  // kUnavailable: another program has a port.
  static Result<std::unique_ptr<GrpcServer>> Listen(const GrpcAddresses& addresses,
                                                    GrpcServices services);
  ~GrpcServer();

  // Where it listens in plain text, in the order given, and with TLS; the ports as they were bound.
  const std::vector<std::string>& addresses() const;
  const std::string& tls_address() const;
  const std::string& join_address() const;

  // Calls that are still under way after `grace` are cancelled.
  void Shutdown(Duration grace);

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
