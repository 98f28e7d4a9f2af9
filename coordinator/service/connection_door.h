// ConnectionDoor: a TCP port of the gRPC server. It accepts the connections, hands them to gRPC and
// cuts those off that outstay their probation (probation.h); an admitted one it lets go.
//
// Owned by GrpcServer, which stops it before the server ends. Has a thread. Admit may be called by
// any thread.
#pragma once

#include <grpcpp/server_builder.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "coordinator/service/probation.h"

namespace muster {

class ConnectionDoor {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Binds IP:PORT; port 0 lets the kernel choose. kUnavailable: the port is taken.
  static Result<std::unique_ptr<ConnectionDoor>> Open(const std::string& address,
                                                      const ProbationLimits& limits);
  ~ConnectionDoor();
  ConnectionDoor(const ConnectionDoor&) = delete;
  ConnectionDoor& operator=(const ConnectionDoor&) = delete;

  int port() const { return port_; }
  // Once the server has started. Clients wait until then.
  void Start(std::unique_ptr<Acceptor> acceptor);
  // No connection comes in any more.
  void Stop();

  // A call of the client at `peer` (grpc::ServerContext::peer) was admitted.
  void Admit(const std::string& peer);

 private:
  struct Client {
    std::string address;
    int fd = -1;  // gRPC's, which closes it at any time
  };

  ConnectionDoor(UniqueFd listener, UniqueFd wake, int port, const ProbationLimits& limits);
  void Run();
  // Waits for a client or the end; whether there may be a client.
  bool WaitForClient();
  bool AcceptOne();
  void Look();
  void CutOff(const std::vector<Probation::Id>& ids);
  void Forget(Probation::Id id);

  const UniqueFd listener_;
  const UniqueFd wake_;
  const int port_;
  std::unique_ptr<Acceptor> acceptor_;
  std::atomic<bool> stopping_ = false;

  std::mutex mutex_;
  Probation probation_;
  Probation::Id last_id_ = 0;
  std::map<Probation::Id, Client> clients_;          // on probation
  std::map<std::string, Probation::Id> by_address_;  // of each client
  std::atomic<std::size_t> on_probation_ = 0;
  std::thread thread_;
};

}  // namespace muster
