#include "common/telemetry/http_server.h"

#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "common/telemetry/beast.h"
#include "common/telemetry/tls_context.h"

namespace muster {
namespace {

constexpr int kMaxConnections = 64;
constexpr std::size_t kMaxHeaderBytes = 8 << 10;
constexpr std::size_t kMaxBodyBytes = 1 << 10;
constexpr auto kIdleTimeout = std::chrono::seconds(10);

using Handlers = std::map<std::string, HttpServer::Handler>;
using Response = http::response<http::string_body>;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;
// Whether a path may be read by who is connected.
using Guard = std::function<Status(const std::string& path)>;

// The handshake of a connection that is kept alive was long ago.
Status CheckNotExpired(const CertificateInfo& peer) {
  if (SystemClock().UnixMillis() < peer.not_after_ms) return OkStatus();
  return Unauthenticated("the certificate of " + IdentityUri(peer.identity) +
                         " has expired; connect with a renewed one");
}

HttpResponse Answer(const Handlers& handlers, const std::string& target, const Guard& guard) {
  const std::size_t question = target.find('?');
  const std::string path = target.substr(0, question);
  if (guard) {
    if (const Status status = guard(path); !status.ok())
      return {403, "text/plain; charset=utf-8", status.message() + "\n"};
  }
  const auto handler = handlers.find(path);
  if (handler != handlers.end())
    return handler->second(question == std::string::npos ? "" : target.substr(question + 1));
  std::string body = "not found; this server has:";
  for (const auto& entry : handlers) body += " " + entry.first;
  return {404, "text/plain; charset=utf-8", body + "\n"};
}

Response BuildResponse(const Handlers& handlers, const http::request<http::string_body>& request,
                       const Guard& guard) {
  const bool head = request.method() == http::verb::head;
  Response response;
  response.version(request.version());
  response.keep_alive(request.keep_alive());
  if (!head && request.method() != http::verb::get) {
    response.result(http::status::method_not_allowed);
    response.set(http::field::allow, "GET, HEAD");
    response.set(http::field::content_type, "text/plain; charset=utf-8");
    response.body() = "only GET and HEAD are answered\n";
    response.prepare_payload();
    return response;
  }
  HttpResponse answer = Answer(handlers, std::string(request.target()), guard);
  response.result(static_cast<unsigned>(answer.status));
  response.set(http::field::content_type, answer.content_type);
  response.set(http::field::cache_control, "no-store");
  if (head) {
    response.content_length(answer.body.size());
  } else {
    response.body() = std::move(answer.body);
    response.prepare_payload();
  }
  return response;
}

// One connection: read, answer, repeat while it is kept alive. Owns itself through the handlers of
// its pending operation; the stream's timer bounds each of them.
template <typename Stream>
class Session : public std::enable_shared_from_this<Session<Stream>> {
 public:
  template <typename... Arguments>
  Session(std::shared_ptr<const Handlers> handlers, std::shared_ptr<int> count,
          Arguments&&... stream)
      : stream_(std::forward<Arguments>(stream)...),
        handlers_(std::move(handlers)),
        count_(std::move(count)) {
    ++*count_;
  }
  ~Session() { --*count_; }

  void Read() {
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(kMaxBodyBytes);
    beast::get_lowest_layer(stream_).expires_after(kIdleTimeout);
    http::async_read(stream_, buffer_, *parser_,
                     [self = this->shared_from_this()](beast::error_code error, std::size_t) {
                       if (!error) self->Write();
                     });
  }

  // Of a TLS stream. `context` lives as long as the connection.
  void Handshake(std::shared_ptr<asio::ssl::context> context,
                 std::shared_ptr<const HttpTlsOptions> options) {
    context_ = std::move(context);
    beast::get_lowest_layer(stream_).expires_after(kIdleTimeout);
    stream_.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this(),
                                                             options](beast::error_code error) {
      if (error) return;
      const Result<CertificateInfo> peer = PeerCertificate(self->stream_.native_handle());
      if (!peer.ok()) return;
      self->guard_ = [options, peer = *peer](const std::string& path) {
        if (const Status status = CheckNotExpired(peer); !status.ok()) return status;
        return options->authorize(path, peer);
      };
      self->Read();
    });
  }

 private:
  void Write() {
    const auto& request = parser_->get();
    const bool head = request.method() == http::verb::head;
    response_ = BuildResponse(*handlers_, request, guard_);
    beast::get_lowest_layer(stream_).expires_after(kIdleTimeout);
    const auto done = [self = this->shared_from_this()](beast::error_code error, std::size_t) {
      if (error) return;
      self->response_.keep_alive() ? self->Read() : self->SayGoodbye();
    };
    if (!head) return http::async_write(stream_, response_, done);
    serializer_.emplace(response_);
    http::async_write_header(stream_, *serializer_, done);
  }

  // So that a client can tell the end from a cut.
  void SayGoodbye() {
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      beast::get_lowest_layer(stream_).expires_after(kIdleTimeout);
      stream_.async_shutdown([self = this->shared_from_this()](beast::error_code) {});
    }
  }

  std::shared_ptr<asio::ssl::context> context_;
  Stream stream_;
  Guard guard_;
  beast::flat_buffer buffer_{kMaxHeaderBytes + kMaxBodyBytes};
  std::optional<http::request_parser<http::string_body>> parser_;
  Response response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  std::shared_ptr<const Handlers> handlers_;
  std::shared_ptr<int> count_;
};

}  // namespace

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
    acceptor.async_accept([self = shared_from_this()](beast::error_code error, tcp::socket socket) {
      if (!self->acceptor.is_open()) return;
      if (error) return self->AcceptLater();
      // Above the bound the socket is closed at once, unread.
      if (*self->count < kMaxConnections) self->Serve(std::move(socket));
      self->Accept();
    });
  }

  void Serve(tcp::socket socket) {
    if (!tls) {
      using Plain = Session<beast::tcp_stream>;
      return std::make_shared<Plain>(handlers, count, std::move(socket))->Read();
    }
    const std::shared_ptr<asio::ssl::context> context = tls->Current(SystemClock().Now());
    std::make_shared<Session<TlsStream>>(handlers, count, std::move(socket), *context)
        ->Handshake(context, tls_options);
  }

  // Without descriptors accept fails at once, again and again; a pause keeps the loop usable.
  void AcceptLater() {
    retry.expires_after(std::chrono::milliseconds(100));
    retry.async_wait([self = shared_from_this()](beast::error_code error) {
      if (!error && self->acceptor.is_open()) self->Accept();
    });
  }

  tcp::acceptor acceptor;
  asio::steady_timer retry;
  std::unique_ptr<TlsContext> tls;  // none: plain text
  std::shared_ptr<HttpTlsOptions> tls_options;
  std::shared_ptr<Handlers> handlers = std::make_shared<Handlers>();
  std::shared_ptr<int> count = std::make_shared<int>(0);
};

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(EventLoop& loop, const std::string& address,
                                                       std::uint16_t port) {
  auto impl = std::make_shared<Impl>(loop);
  MUSTER_RETURN_IF_ERROR(impl->Bind(address, port));
  impl->Accept();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

Result<std::unique_ptr<HttpServer>> HttpServer::ListenTls(EventLoop& loop,
                                                          const std::string& address,
                                                          std::uint16_t port,
                                                          HttpTlsOptions options) {
  auto impl = std::make_shared<Impl>(loop);
  MUSTER_ASSIGN_OR_RETURN(impl->tls, TlsContext::Open(options.credentials_dir));
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
  impl_->handlers->clear();
  if (impl_->tls_options)
    impl_->tls_options->authorize = [](const std::string&, const CertificateInfo&) {
      return Unavailable("the server is shutting down");
    };
}

void HttpServer::Handle(const std::string& path, Handler handler) {
  (*impl_->handlers)[path] = std::move(handler);
}

std::uint16_t HttpServer::port() const { return impl_->acceptor.local_endpoint().port(); }

}  // namespace muster
