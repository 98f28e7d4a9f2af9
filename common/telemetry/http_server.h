// HttpServer: a small HTTP/1.1 server on a daemon's event loop (/metrics, /healthz, the status
// page with its streams of server-sent events).
//
// Owned by a daemon. Handlers run on the loop's thread and must be quick; what takes longer is
// answered later. Connections, streams, request sizes and idle time are bounded. In plain text it
// binds to loopback addresses only, and answers only requests for an address or `localhost`: a web
// page of another site whose name leads here (DNS rebinding) gets nothing. With TLS (1.3,
// certificates on both sides, or sessions of people who have signed in) it binds to any, and each
// request is held against the caller's certificate: once that has expired, a connection that it has
// opened is refused everything. At
// most 16 handshakes are under way; a client that connects and does not go on gives way to one that
// waits, and so does a connection without a request where the bound is reached.
// Requests of another origin than this server are refused, and no answer may be framed, sniffed or
// read by other origins.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/runtime/event_loop.h"
#include "common/telemetry/http_handler.h"
#include "common/telemetry/http_stream.h"

namespace muster {

class HttpServer {
 public:
  static constexpr int kMaxConnections = 128;

  // Binds at once; port 0 lets the kernel choose. A stream gets a sign of life after each
  // `heartbeat` without an event.
  static Result<std::unique_ptr<HttpServer>> Listen(EventLoop& loop, const std::string& address,
                                                    std::uint16_t port,
                                                    Duration heartbeat = kHttpHeartbeat);
  static Result<std::unique_ptr<HttpServer>> ListenTls(EventLoop& loop, const std::string& address,
                                                       std::uint16_t port, HttpTlsOptions options);
  ~HttpServer();

  // `path` is matched whole, without the query; one that ends with '/' and is longer also stands
  // for all below it. Call before the loop runs.
  void Handle(const std::string& path, HttpHandler handler);
  void HandleLater(const std::string& path, HttpLateHandler handler);
  void HandleStream(const std::string& path, HttpStreamHandler handler);
  // A POST to exactly this path, by a page of this server: of another origin, or of none, it is
  // refused. Its body is not read out.
  void HandlePost(const std::string& path, HttpLateHandler handler);
  std::uint16_t port() const;

 private:
  struct Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace muster
