// HttpServer: a small HTTP/1.1 GET server on a daemon's event loop (/metrics, /healthz, ...).
//
// Handlers run on the loop's thread and must be quick. Connections, request sizes and idle time
// are bounded. Binds to loopback addresses only; anything else is refused until TLS is there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/runtime/event_loop.h"

namespace muster {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const std::string& query)>;

  // Binds at once; port 0 lets the kernel choose.
  static Result<std::unique_ptr<HttpServer>> Listen(EventLoop& loop, const std::string& address,
                                                    std::uint16_t port);
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
