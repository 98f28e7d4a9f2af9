// ProbePort: where other nodes' probes find this worker: a socket at the node's address that takes
// connections and closes them; that it does so is the answer, since only a loop that runs can. It
// reads and says nothing, so it may be open where HTTP, which is not encrypted, may not.
//
// Loop thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/runtime/event_loop.h"

namespace muster::worker {

class ProbePort {
 public:
  // `address` is a name or an IP address of this host. kAlreadyExists: the port is taken there.
  static Result<std::unique_ptr<ProbePort>> Listen(EventLoop& loop, const std::string& address,
                                                   std::uint16_t port);
  ~ProbePort();

  std::uint16_t port() const;

 private:
  struct Impl;
  explicit ProbePort(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// Whether `address` is one that a server on 127.0.0.1 cannot be reached at.
bool NeedsProbePort(const std::string& address);

}  // namespace muster::worker
