// GrpcServer: the coordinator's gRPC port with its services behind it.
//
// Owned by the server. Shutdown blocks until every call is finished and may be called from any
// thread while the loop still runs, which finishes them; the destructor expects that it was.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace muster {

class ClientService;
class WorkerService;

class GrpcServer {
 public:
  // The addresses have been checked: plain text may be spoken there. kUnavailable: somebody else
  // has a port.
  static Result<std::unique_ptr<GrpcServer>> Listen(const std::vector<std::string>& addresses,
                                                    ClientService& clients, WorkerService& workers);
  ~GrpcServer();

  // Where it listens, in the order given, the ports as they were bound.
  const std::vector<std::string>& addresses() const;

  // Calls that are still under way after `grace` are cancelled.
  void Shutdown(Duration grace);

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
