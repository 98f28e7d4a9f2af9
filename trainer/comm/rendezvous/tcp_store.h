// TcpStoreServer: LibTorch's TCPStore, where the ranks of one generation find each other; clients
// are StoreClients (store_client.h), or c10d's own.
//
// The only place that includes c10d; its exceptions end here. Owned by the rank that serves.
#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

struct StoreEndpoint {
  std::string address;  // where the server reaches itself
  int port = 0;
  UniqueFd listen_fd;  // bound to `port` and listening; invalid: the server binds it itself
};

class TcpStoreServer {
 public:
  // Serves until its end, on threads of its own.
  virtual ~TcpStoreServer() = default;
  static Result<std::unique_ptr<TcpStoreServer>> Start(StoreEndpoint endpoint, Deadline deadline);
};

}  // namespace muster
