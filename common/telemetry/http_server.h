// HttpServer: a small HTTP/1.1 GET server on a daemon's event loop (/metrics, /healthz, the status
// page with its streams of server-sent events).
//
// Owned by a daemon. Handlers run on the loop's thread and must be quick; what takes longer is
// answered later. Connections, streams, request sizes and idle time are bounded. In plain text it
// binds to loopback addresses only, and answers only requests for an address or `localhost`: a web
// page of another site whose name leads here (DNS rebinding) gets nothing. With TLS (1.3,
// certificates on both sides) it binds to any, and each request is held against the caller's
// certificate: once that has expired, a connection that it has opened is refused everything. At
// most 16 handshakes are under way; a client that connects and does not go on gives way to one that
// waits.
// Requests of another origin than this server are refused, and no answer may be framed, sniffed or
// read by other origins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/runtime/event_loop.h"
#include "common/security/certificate.h"
#include "common/telemetry/http_stream.h"

namespace muster {

// Allows nothing, also where a browser takes an answer for a document.
inline constexpr char kNoContentPolicy[] = "default-src 'none'; frame-ancestors 'none'";

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::string content_policy = kNoContentPolicy;  // Content-Security-Policy
};

struct HttpRequest {
  std::string path;             // as it was sent, without the query
  std::string query;            // without '?'
  std::string bearer;           // of "Authorization: Bearer ..."; empty: none
  bool by_certificate = false;  // over TLS, by a client that `authorize` let in
  // Over TLS: whether `authorize` would still let the client in. A stream calls it now and then.
  std::function<Status()> recheck;
};

// Answers one request: once, on the loop's thread, now or later. Dropped without having been
// called, it closes the connection; so its keeper must have a deadline.
using HttpResponder = std::function<void(HttpResponse)>;

struct HttpTlsOptions {
  std::string credentials_dir;  // followed: a renewed certificate is shown from then on
  // Whether the peer, whose certificate is good still, may have what is at `path`; the message of a
  // refusal is sent with 403.
  std::function<Status(const std::string& path, const CertificateInfo& peer)> authorize;
};

class HttpServer {
 public:
  // Streams at once; more are answered with 503, so that other requests find a connection.
  static constexpr int kMaxStreams = 64;
  static constexpr int kMaxConnections = 128;

  using Handler = std::function<HttpResponse(const std::string& query)>;
  using LateHandler = std::function<void(const HttpRequest& request, HttpResponder reply)>;
  // What of it is not OK is sent instead of a stream.
  using StreamHandler =
      std::function<HttpResponse(const HttpRequest& request, std::shared_ptr<HttpStream> stream)>;

  // Binds at once; port 0 lets the kernel choose.
  static Result<std::unique_ptr<HttpServer>> Listen(EventLoop& loop, const std::string& address,
                                                    std::uint16_t port);
  static Result<std::unique_ptr<HttpServer>> ListenTls(EventLoop& loop, const std::string& address,
                                                       std::uint16_t port, HttpTlsOptions options);
  ~HttpServer();

  // `path` is matched whole, without the query; one that ends with '/' and is longer also stands
  // for all below it. Call before the loop runs.
  void Handle(const std::string& path, Handler handler);
  void HandleLater(const std::string& path, LateHandler handler);
  void HandleStream(const std::string& path, StreamHandler handler);
  std::uint16_t port() const;

  void SetHeartbeatForTest(Duration heartbeat);  // of streams that are opened from then on

 private:
  struct Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace muster
