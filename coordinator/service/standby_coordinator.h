// StandbyCoordinator: what a coordinator answers at its addresses while another one leads.
//
//   its version, health and metrics    as the leader does
//   a node that joins                  as the leader does, by the authority of its own directory
//   a login                            UNAVAILABLE, with the address where the leader takes it
//   every other call                   UNAVAILABLE, with the leader's address (common/rpc/leader.h)
//   every other page                   a redirect to the leader's
//
// Owned by Server::Start, which waits for the leader key meanwhile. A thread of the standby's own
// runs its loop. The destructor closes the ports, which the server then opens.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/rpc/endpoint.h"
#include "common/security/site_certificate.h"
#include "coordinator/service/certificate_rotator.h"
#include "coordinator/service/grpc_server.h"
#include "coordinator/store/etcd_roster.h"
#include "coordinator/store/journal_format.h"

namespace muster {

struct StandbyCoordinatorOptions {
  std::string cluster;  // of VersionResponse
  GrpcAddresses grpc;
  std::string authority;     // directory; empty: nodes do not join here
  Duration node_lifetime{};  // of their certificates
  const EtcdRoster* roster;  // outlives it
  // An address that was listened at, as other machines reach it; empty: they do not.
  std::function<std::string(const std::string& bound)> reachable;
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

  // As bound; without epoch.
  const Endpoint& endpoint() const;
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
