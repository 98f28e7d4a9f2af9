// HttpServer: a small HTTP/1.1 GET server on a daemon's event loop (/metrics, /healthz, ...).
//
// Handlers run on the loop's thread and must be quick. Connections, request sizes and idle time
// are bounded. In plain text it binds to loopback addresses only; with TLS (1.3, certificates on
// both sides) to any, and each request is held against the caller's certificate: once that has
// expired, a connection that it has opened is refused everything.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/runtime/event_loop.h"
#include "common/security/certificate.h"

namespace muster {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpTlsOptions {
  std::string credentials_dir;  // followed: a renewed certificate is shown from then on
  // Whether the peer, whose certificate is good still, may have what is at `path`; the message of a
  // refusal is sent with 403.
  std::function<Status(const std::string& path, const CertificateInfo& peer)> authorize;
};

class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const std::string& query)>;

  // Binds at once; port 0 lets the kernel choose.
  static Result<std::unique_ptr<HttpServer>> Listen(EventLoop& loop, const std::string& address,
                                                    std::uint16_t port);
  static Result<std::unique_ptr<HttpServer>> ListenTls(EventLoop& loop, const std::string& address,
                                                       std::uint16_t port, HttpTlsOptions options);
  ~HttpServer();

  // `path` is matched whole, without the query. Call before the loop runs.
  void Handle(const std::string& path, Handler handler);
  std::uint16_t port() const;

 private:
  struct Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace muster
