// CoordinatorLink: how a client reaches the coordinator of one cluster directory, or one on another
// machine.
//
// Reads the endpoint and token files, or the list of a directory with several coordinators, or
// calls FindRemote, before each connection, because a restarted coordinator may listen elsewhere.
// It finds the one of several coordinators that leads: a call that a standby coordinator refuses is
// made again at the leader's address. Errors name the next command to type.
//
// Owned by a ClusterClient. One thread.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/base/interrupt.h"
#include "cli/client/remote_coordinator.h"
#include "common/base/clock.h"
#include "common/base/cluster_paths.h"
#include "common/base/result.h"
#include "common/rpc/coordinator_addresses.h"
#include "common/rpc/leader.h"
#include "common/rpc/tls.h"
#include "muster/v1/client_api.grpc.pb.h"
#include "muster/v1/secret_api.grpc.pb.h"

namespace muster {

class CoordinatorLink {
 public:
  struct Stubs {
    std::unique_ptr<v1::Client::Stub> client;
    std::unique_ptr<v1::Secrets::Stub> secrets;

    v1::Client::Stub& Of(const v1::Client::Stub*) const { return *client; }
    v1::Secrets::Stub& Of(const v1::Secrets::Stub*) const { return *secrets; }
  };
  using Call = std::function<grpc::Status(const Stubs& stubs, grpc::ClientContext& context)>;

  CoordinatorLink(std::string dir, Interrupt& interrupt, RemoteCoordinator remote);
  CoordinatorLink(std::string dir, Interrupt& interrupt, FindRemote find_remote);

  // ClusterClient passes these on; its header describes them.
  void OtherwiseUse(FindRemote find) { find_login_ = std::move(find); }
  void ActFor(std::string user) { as_user_ = std::move(user); }
  void LimitCalls(Duration limit) { call_limit_ = limit; }
  void Disconnect() { connection_.reset(); }
  Status CheckIsLocal() const;
  Result<Endpoint> FindEndpoint() const;
  Result<Endpoint> AwaitEndpoint();
  Result<std::vector<CoordinatorAnswer>> AskCoordinators();

  const ClusterPaths& paths() const { return paths_; }
  Interrupt& interrupt() { return interrupt_; }

  // Makes the call at the coordinator that leads, within the limit of calls unless it sets a
  // deadline of its own. It is made more than once only where a standby coordinator has refused it.
  // kUnavailable: no leader was reached; kCancelled: the user has interrupted.
  Status Reach(const Call& call);

 private:
  struct Connection {
    CoordinatorChannel coordinator;
    Stubs stubs;
  };
  Status Use(RemoteCoordinator remote);
  void UseLocal();
  Status FindCredentials();
  Status Connect(const Deadline& until);
  Status ConnectOnce();
  // Whether the call may be made again, at another coordinator.
  bool Follow(const StandbyAnswer& standby, const Deadline& until);
  void Attach(grpc::ClientContext& context) const;
  Status Explain(const Status& status) const;
  std::string RestartCommand() const;

  ClusterPaths paths_;
  Interrupt& interrupt_;
  RemoteCoordinator remote_;
  std::unique_ptr<CoordinatorAddresses> addresses_;
  Status address_status_;     // of the text in `remote_`
  const bool is_local_;       // nothing was given but the directory
  bool has_several_ = false;  // which is one of several coordinators
  const FindRemote find_remote_;
  FindRemote find_login_;
  std::string as_user_;
  Duration call_limit_ = std::chrono::seconds(15);
  std::unique_ptr<Connection> connection_;
};

}  // namespace muster
