#include "common/telemetry/http_server.h"

#include <map>
#include <optional>
#include <utility>

#include "common/telemetry/beast.h"

namespace muster {
namespace {

constexpr int kMaxConnections = 64;
constexpr std::size_t kMaxHeaderBytes = 8 << 10;
constexpr std::size_t kMaxBodyBytes = 1 << 10;
constexpr auto kIdleTimeout = std::chrono::seconds(10);

using Handlers = std::map<std::string, HttpServer::Handler>;
using Response = http::response<http::string_body>;

HttpResponse Answer(const Handlers& handlers, const std::string& target) {
  const std::size_t question = target.find('?');
  const auto handler = handlers.find(target.substr(0, question));
  if (handler != handlers.end())
    return handler->second(question == std::string::npos ? "" : target.substr(question + 1));
  std::string body = "not found; this server has:";
  for (const auto& entry : handlers) body += " " + entry.first;
  return {404, "text/plain; charset=utf-8", body + "\n"};
}

Response BuildResponse(const Handlers& handlers, const http::request<http::string_body>& request) {
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
  HttpResponse answer = Answer(handlers, std::string(request.target()));
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
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, std::shared_ptr<const Handlers> handlers, std::shared_ptr<int> count)
      : stream_(std::move(socket)), handlers_(std::move(handlers)), count_(std::move(count)) {
    ++*count_;
  }
  ~Session() { --*count_; }

  void Read() {
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(kMaxBodyBytes);
    stream_.expires_after(kIdleTimeout);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, std::size_t) {
                       if (!error) self->Write();
                     });
  }

 private:
  void Write() {
    const auto& request = parser_->get();
    const bool head = request.method() == http::verb::head;
    response_ = BuildResponse(*handlers_, request);
    stream_.expires_after(kIdleTimeout);
    const auto done = [self = shared_from_this()](beast::error_code error, std::size_t) {
      if (!error && self->response_.keep_alive()) self->Read();
    };
    if (!head) return http::async_write(stream_, response_, done);
    serializer_.emplace(response_);
    http::async_write_header(stream_, *serializer_, done);
  }

  beast::tcp_stream stream_;
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
    beast::error_code error;
    const auto ip = asio::ip::make_address(address == "localhost" ? "127.0.0.1" : address, error);
    if (error) return InvalidArgument("'" + address + "' is no IP address; use 127.0.0.1");
    if (!ip.is_loopback())
      return PermissionDenied("HTTP on '" + address +
                              "' is refused until TLS is configured; use 127.0.0.1");
    const tcp::endpoint endpoint(ip, port);
    const auto failed = [&] {
      return Unavailable("cannot serve HTTP on " + address + ":" + std::to_string(port) + ": " +
                         error.message() + "; choose another port with --http");
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
      if (*self->count < kMaxConnections)
        std::make_shared<Session>(std::move(socket), self->handlers, self->count)->Read();
      self->Accept();
    });
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

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  beast::error_code ignored;
  impl_->acceptor.close(ignored);
  impl_->retry.cancel();
  // Connections may outlive the server for a moment; what the handlers refer to may not.
  impl_->handlers->clear();
}

void HttpServer::Handle(const std::string& path, Handler handler) {
  (*impl_->handlers)[path] = std::move(handler);
}

std::uint16_t HttpServer::port() const { return impl_->acceptor.local_endpoint().port(); }

}  // namespace muster
