// StandbyCoordinator: what a coordinator answers at its addresses while another one leads.
//
//   its version, health and metrics    as the leader does
//   every other call                   UNAVAILABLE, with the leader's address (common/rpc/leader.h)
//   every other page                   a redirect to the leader's
//
// Owned by Server::Start, which waits for the leader key meanwhile. A thread of the standby's own
// runs its loop. The destructor closes the ports, which the server then opens.
#pragma once

#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/security/site_certificate.h"
#include "coordinator/service/certificate_rotator.h"
#include "coordinator/service/grpc_server.h"
#include "coordinator/store/journal_format.h"

namespace muster {

struct StandbyCoordinatorOptions {
  std::string cluster;        // of VersionResponse
  GrpcAddresses grpc;         // but for `join`
  std::string http;           // loopback HOST:PORT
  std::string tls_http;       // IP:PORT; empty: none
  SiteCertificateFiles page;  // of `tls_http`
  std::shared_ptr<Authenticator> authenticator;
  CertificateRotatorOptions certificates;  // without directory: no TLS
  std::string endpoint_path;               // the endpoint file of this machine's clients
};

class StandbyCoordinator {
 public:
  // kUnavailable: another program has a port.
  static Result<std::unique_ptr<StandbyCoordinator>> Listen(StandbyCoordinatorOptions options);
  ~StandbyCoordinator();
  StandbyCoordinator(const StandbyCoordinator&) = delete;
  StandbyCoordinator& operator=(const StandbyCoordinator&) = delete;

  // Who leads; nullptr: no coordinator at the moment. Any thread.
  void SetLeader(const EpochClaim* leader);
  // Not OK ends the waiting: the authority of the certificates was replaced. Any thread.
  Status outcome() const;

 private:
  struct Impl;
  explicit StandbyCoordinator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
