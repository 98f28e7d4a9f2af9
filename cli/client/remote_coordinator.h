// Which coordinator a client calls, and what one has said. Values.
#pragma once

#include <functional>
#include <string>

#include "common/base/result.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

// A coordinator on another machine, reached over TLS.
struct RemoteCoordinator {
  // IP:PORT[,...], of which one leads; empty: the one of the cluster directory.
  std::string address;
  std::string credentials_dir;  // empty: none; then the token of the cluster directory
};

// What a coordinator has said of itself.
struct CoordinatorAnswer {
  std::string address;
  Status status;  // kUnavailable, kDeadlineExceeded: it does not answer; else it refuses
  v1::VersionResponse version;
};

// Called before each connection, for a coordinator that can move between machines.
using FindRemote = std::function<Result<RemoteCoordinator>()>;

}  // namespace muster
