#include "common/telemetry/http_server.h"

#include <utility>

#include "common/telemetry/beast.h"
#include "common/telemetry/http_routes.h"
#include "common/telemetry/http_session.h"
#include "common/telemetry/log.h"
#include "common/telemetry/tls_context.h"

namespace muster {

namespace {
constexpr Duration kDisplacedInterval = std::chrono::minutes(1);  // of that line in the log
}

struct HttpServer::Impl : std::enable_shared_from_this<Impl> {
  explicit Impl(EventLoop& loop) : acceptor(loop.context()), retry(loop.context()) {}

  Status Bind(const std::string& address, std::uint16_t port) {
    const char* flag = tls ? "--tls-http" : "--http";
    beast::error_code error;
    const auto ip = asio::ip::make_address(address == "localhost" ? "127.0.0.1" : address, error);
    if (error) return InvalidArgument("'" + address + "' is no IP address; use 127.0.0.1");
    if (!tls && !ip.is_loopback())
      return PermissionDenied("HTTP in plain text on '" + address + "' is refused; use 127.0.0.1");
    const tcp::endpoint endpoint(ip, port);
    const auto failed = [&] {
      const bool taken = tls && error == asio::error::address_in_use;
      return Status(taken ? StatusCode::kAlreadyExists : StatusCode::kUnavailable,
                    "cannot serve HTTP on " + address + ":" + std::to_string(port) + ": " +
                        error.message() + "; choose another port with " + flag);
    };
    if (acceptor.open(endpoint.protocol(), error)) return failed();
    if (acceptor.set_option(tcp::acceptor::reuse_address(true), error)) return failed();
    if (acceptor.bind(endpoint, error)) return failed();
    if (acceptor.listen(asio::socket_base::max_listen_connections, error)) return failed();
    return OkStatus();
  }

  void Accept() {
    if (routes->handshakes.full()) return AwaitOneMore();
    acceptor.async_accept([self = shared_from_this()](beast::error_code error, tcp::socket socket) {
      if (!self->acceptor.is_open()) return;
      if (error) return self->AcceptLater();
      if (self->routes->connections < kMaxConnections || self->HangUpOnOldest())
        self->Serve(std::move(socket));
      self->Accept();
    });
  }

  // A connection without a request gives way to a new one. Where all have one, the new one is
  // closed unread.
  bool HangUpOnOldest() {
    if (routes->waiting.empty()) return false;
    const auto hang_up = routes->waiting.extract(routes->waiting.begin());
    hang_up.mapped()();
    return true;
  }

  // Where no client waits, no handshake need give way.
  void AwaitOneMore() {
    acceptor.async_wait(tcp::acceptor::wait_read,
                        [self = shared_from_this()](beast::error_code error) {
                          if (!self->acceptor.is_open()) return;
                          error ? self->AcceptLater() : self->MakeRoom();
                        });
  }

  void MakeRoom() {
    const TimePoint now = SystemClock().Now();
    const Duration wait = routes->handshakes.MakeRoom(now);
    if (wait > Duration::zero()) return AcceptLater(wait);
    if (now - said_displaced >= kDisplacedInterval && routes->handshakes.displaced() > 0) {
      said_displaced = now;
      Log().warn(
          "HTTPS: {} handshakes so far gave way to others that waited; a client connects "
          "and does not go on",
          routes->handshakes.displaced());
    }
    Accept();
  }

  void Serve(tcp::socket socket) {
    if (!tls) {
      return std::make_shared<HttpSession>(routes, std::move(socket))->Read();
    }
    std::make_shared<HttpSession>(routes, std::move(socket), tls->Current())
        ->Handshake(tls_options);
  }

  // Without descriptors accept fails at once, again and again; a pause keeps the loop usable.
  void AcceptLater(Duration pause = std::chrono::milliseconds(100)) {
    retry.expires_after(pause);
    retry.async_wait([self = shared_from_this()](beast::error_code error) {
      if (!error && self->acceptor.is_open()) self->Accept();
    });
  }

  tcp::acceptor acceptor;
  asio::steady_timer retry;
  TimePoint said_displaced;
  std::unique_ptr<TlsContext> tls;  // none: plain text
  std::shared_ptr<HttpTlsOptions> tls_options;
  std::shared_ptr<HttpRoutes> routes = std::make_shared<HttpRoutes>();
};

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(EventLoop& loop, const std::string& address,
                                                       std::uint16_t port, Duration heartbeat) {
  auto impl = std::make_shared<Impl>(loop);
  impl->routes->heartbeat = heartbeat;
  MUSTER_RETURN_IF_ERROR(impl->Bind(address, port));
  impl->Accept();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

Result<std::unique_ptr<HttpServer>> HttpServer::ListenTls(EventLoop& loop,
                                                          const std::string& address,
                                                          std::uint16_t port,
                                                          HttpTlsOptions options) {
  auto impl = std::make_shared<Impl>(loop);
  const auto clients = options.find_session ? TlsContext::Clients::kMayHaveCertificates
                                            : TlsContext::Clients::kHaveCertificates;
  MUSTER_ASSIGN_OR_RETURN(impl->tls,
                          TlsContext::Open({options.credentials_dir, options.site}, clients));
  impl->tls_options = std::make_shared<HttpTlsOptions>(std::move(options));
  MUSTER_RETURN_IF_ERROR(impl->Bind(address, port));
  impl->Accept();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  beast::error_code ignored;
  impl_->acceptor.close(ignored);
  impl_->retry.cancel();
  // Connections may outlive the server for a moment; what the handlers refer to may not.
  impl_->routes->routes.clear();
  impl_->routes->posts.clear();
  if (!impl_->tls_options) return;
  impl_->tls_options->find_session = nullptr;
  impl_->tls_options->authorize = [](const std::string&, const CertificateInfo*) {
    return Unavailable("the server is shutting down");
  };
}

void HttpServer::Handle(const std::string& path, HttpHandler handler) {
  HandleLater(
      path, [handler = std::move(handler)](const HttpRequest& request, const HttpResponder& reply) {
        reply(handler(request.query));
      });
}

void HttpServer::HandleLater(const std::string& path, HttpLateHandler handler) {
  impl_->routes->routes[path] = std::move(handler);
}

void HttpServer::HandlePost(const std::string& path, HttpLateHandler handler) {
  impl_->routes->posts[path] = std::move(handler);
}

void HttpServer::HandleStream(const std::string& path, HttpStreamHandler handler) {
  impl_->routes->routes[path] = std::move(handler);
}

std::uint16_t HttpServer::port() const { return impl_->acceptor.local_endpoint().port(); }

}  // namespace muster
