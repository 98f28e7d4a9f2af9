// Where a coordinator listens, and which addresses it may listen on.
//
// The coordinator writes the endpoint file when both of its ports are bound; whoever finds the file
// can connect. Free functions; any thread; the file functions block.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace muster {

struct Endpoint {
  std::string grpc;  // "127.0.0.1:PORT" or "unix:PATH"
  std::string http;  // "127.0.0.1:PORT"
  std::int64_t pid = 0;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// {"grpc": ..., "http": ..., "pid": ...}, replaced as one step.
Status WriteEndpoint(const std::string& path, const Endpoint& endpoint);
Result<Endpoint> ReadEndpoint(const std::string& path);

// OK for 127.0.0.0/8, [::1] and localhost with a port, and for unix:PATH. Everything else is
// refused: without TLS the token would cross the network in clear.
Status CheckListenAddress(const std::string& address);

}  // namespace muster
