// StoreSession: LibTorch's TCPStore, where the ranks of one generation find each other.
//
// The only place that includes c10d; its exceptions end here. A session is either the server and a
// client of it, or a client alone. Owned by whoever meets; used by one thread.
#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

struct StoreEndpoint {
  std::string address;
  int port = 0;
  UniqueFd listen_fd;  // valid: serve on this socket
  bool serve = false;  // serve on `port` although no socket was handed down
};

class StoreSession {
 public:
  virtual ~StoreSession() = default;

  // Connects (and serves). A server that is not up yet is waited for by the caller: this fails
  // soon when nobody listens.
  static Result<std::unique_ptr<StoreSession>> Open(StoreEndpoint endpoint, Deadline deadline);

  virtual Status Set(const std::string& key, const std::string& value) = 0;
  virtual Result<bool> Has(const std::string& key) = 0;
  // Precondition: the key is there.
  virtual Result<std::string> Get(const std::string& key) = 0;
};

}  // namespace muster
