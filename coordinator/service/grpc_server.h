// GrpcServer: the coordinator's gRPC port with its services behind it.
//
// Owned by the server. Shutdown blocks until every call is finished and may be called from any
// thread while the loop still runs, which finishes them; the destructor expects that it was.
#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace muster {

class ClientService;
class WorkerService;

class GrpcServer {
 public:
  // `address` has passed CheckListenAddress. kUnavailable: somebody else has the port.
  static Result<std::unique_ptr<GrpcServer>> Listen(const std::string& address,
                                                    ClientService& clients, WorkerService& workers);
  ~GrpcServer();

  // Where it listens, the port as it was bound.
  const std::string& address() const;

  // Calls that are still under way after `grace` are cancelled.
  void Shutdown(Duration grace);

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
