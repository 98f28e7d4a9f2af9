// ProbePort: the target of other nodes' probes: a socket at the node's address that accepts
// connections and closes them. That is the answer, because only a loop that runs can do it. It
// reads and sends nothing, so it may be open where HTTP, which is not encrypted, may not.
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

// Whether a server on 127.0.0.1 cannot be reached at `address`.
bool NeedsProbePort(const std::string& address);

}  // namespace muster::worker
