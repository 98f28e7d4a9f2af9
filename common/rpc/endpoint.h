// Where a coordinator listens, and which addresses it may listen on in plain text or with TLS.
//
// The coordinator writes the endpoint file when both of its ports are bound; a client that finds
// the file can connect. Free functions; any thread; the file functions block.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace muster {

struct Endpoint {
  std::string grpc;  // "127.0.0.1:PORT" or "unix:PATH"
  std::string http;  // "127.0.0.1:PORT"
  std::int64_t pid = 0;
  // For other machines, which need credentials; empty: it does not listen there.
  std::string grpc_tls;  // "10.0.0.1:PORT"
  std::string http_tls;
  std::string grpc_join;  // where nodes join, as other machines reach it; empty: nowhere
  // Set by a coordinator that leads, by a journal or etcd: higher than that of any before it. 0: it
  // has neither, or stands by.
  std::uint64_t epoch = 0;
  // What the status page on `http` asks for: 64 hexadecimal digits, made anew at each start;
  // secret.
  std::string page_key;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// {"grpc": ..., "http": ..., "pid": ...} and, where they are set, "grpc_tls", "http_tls",
// "grpc_join", "epoch" and "page_key"; mode 0600, replaced as one step.
Status WriteEndpoint(const std::string& path, const Endpoint& endpoint);
Result<Endpoint> ReadEndpoint(const std::string& path);

// "unix:PATH".
bool IsUnixAddress(const std::string& address);
// OK for 127.0.0.0/8, [::1] and localhost with a port, and for unix:PATH. Everything else is
// refused: without TLS the token would cross the network in clear.
Status CheckListenAddress(const std::string& address);

// OK for IP:PORT, where TLS is to be spoken.
Status CheckTlsListenAddress(const std::string& address);

// Of HOST:PORT, which has been checked; without the brackets of an IPv6 address.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
HostPort SplitAddress(const std::string& address);
// And back: "[::1]:80".
std::string JoinAddress(const HostPort& address);

}  // namespace muster
