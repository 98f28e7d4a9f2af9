// HttpSession: one connection of an HttpServer: read, answer, repeat while it is kept alive, or end
// as a stream of events. Private to this folder.
//
// Owns itself through the handlers of its pending operation, and through the reply that a handler
// keeps; the loop's thread. The stream's timer bounds each operation, but for the reading beside a
// stream of events, which only waits for the client to go.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

#include "common/base/clock.h"
#include "common/security/certificate.h"
#include "common/telemetry/beast.h"
#include "common/telemetry/http_routes.h"
#include "common/telemetry/tls_context.h"

namespace muster {

using HttpTlsStream = beast::ssl_stream<beast::tcp_stream>;

// The handshake of a connection that is kept alive was long ago.
inline Status CheckPeerNotExpired(const CertificateInfo& peer) {
  if (SystemClock().UnixMillis() < peer.not_after_ms) return OkStatus();
  return Unauthenticated("the certificate of " + IdentityUri(peer.identity) +
                         " has expired; connect with a renewed one");
}

template <typename Stream>
class HttpSession : public HttpStream, public std::enable_shared_from_this<HttpSession<Stream>> {
 public:
  static constexpr std::size_t kMaxHeaderBytes = 8 << 10;
  static constexpr std::size_t kMaxBodyBytes = 1 << 10;
  static constexpr auto kIdleTimeout = std::chrono::seconds(10);

  template <typename... Arguments>
  explicit HttpSession(std::shared_ptr<HttpRoutes> routes, Arguments&&... stream)
      : stream_(std::forward<Arguments>(stream)...),
        heartbeat_(stream_.get_executor()),
        routes_(std::move(routes)) {
    ++routes_->connections;
  }
  ~HttpSession() override {
    --routes_->connections;
    routes_->handshakes.End(handshake_);
    if (streaming_ && !ended_) --routes_->streams;
  }

  void Read() {
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(kMaxBodyBytes);
    Lowest().expires_after(kIdleTimeout);
    http::async_read(stream_, buffer_, *parser_,
                     [self = this->shared_from_this()](beast::error_code error, std::size_t) {
                       if (!error) self->Answer();
                     });
  }

  // For a TLS stream. `context` lives as long as the connection.
  void Handshake(std::shared_ptr<asio::ssl::context> context,
                 std::shared_ptr<const HttpTlsOptions> options) {
    context_ = std::move(context);
    const auto has_spoken = [this] {
      return SSL_get_state(stream_.native_handle()) != TLS_ST_BEFORE;
    };
    handshake_ =
        routes_->handshakes.Begin({has_spoken, [this] { Lowest().close(); }}, SystemClock().Now());
    Lowest().expires_after(kIdleTimeout);
    stream_.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this(),
                                                             options](beast::error_code error) {
      self->routes_->handshakes.End(self->handshake_);
      if (error) return;
      const Result<CertificateInfo> peer = PeerCertificate(self->stream_.native_handle());
      if (!peer.ok()) return;
      self->guard_ = [options, peer = *peer](const std::string& path) {
        if (const Status status = CheckPeerNotExpired(peer); !status.ok()) return status;
        return options->authorize(path, peer);
      };
      self->Read();
    });
  }

  // --- HttpStream ---

  bool ready() const override { return streaming_ && !writing_ && !ended_; }

  bool Send(std::string_view event, std::string_view data) override {
    if (!ready()) return false;
    std::string text;
    text.reserve(event.size() + data.size() + 16);
    text.append("event: ").append(event).append("\ndata: ").append(data).append("\n\n");
    WriteText(std::move(text));
    return true;
  }

  void Listen(std::function<void()> on_ready, std::function<void()> on_gone) override {
    on_ready_ = std::move(on_ready);
    on_gone_ = std::move(on_gone);
  }

  void Close() override {
    on_gone_ = nullptr;
    End();
  }

 private:
  beast::tcp_stream& Lowest() { return beast::get_lowest_layer(stream_); }

  void Answer() {
    const HttpMessage& message = parser_->get();
    HttpResponse refusal;
    if (!IsWelcome(message, guard_, &refusal)) return Write(std::move(refusal), /*last=*/true);
    const HttpRequest request = RequestOf(message, guard_);
    const HttpRoutes::Route* route = routes_->Find(request.path);
    if (route == nullptr) return Write(routes_->NotFound());
    if (const auto* stream = std::get_if<HttpStreamHandler>(route))
      return BeginStream(*stream, request);
    awaited_ = ++requests_;
    std::get<HttpLateHandler> (*route)(
        request, [self = this->shared_from_this(), number = requests_](HttpResponse response) {
          if (self->awaited_ != number) return;
          self->awaited_ = 0;
          self->Write(std::move(response));
        });
  }

  // After the last one the connection ends, whatever the client has asked for.
  void Write(HttpResponse response, bool last = false) {
    const bool head = parser_->get().method() == http::verb::head;
    answer_ = BuildAnswer(parser_->get(), std::move(response));
    if (last) answer_.keep_alive(false);
    Lowest().expires_after(kIdleTimeout);
    const auto done = [self = this->shared_from_this()](beast::error_code error, std::size_t) {
      if (error) return;
      self->answer_.keep_alive() ? self->Read() : self->HangUp();
    };
    if (!head) return http::async_write(stream_, answer_, done);
    serializer_.emplace(answer_);
    http::async_write_header(stream_, *serializer_, done);
  }

  // Closes at once, and not when the client has had enough, or the keeper of the reply. TLS says so
  // first, by which a client can distinguish the end from a cut; the client's own goodbye is taken
  // as said.
  void HangUp() {
    if constexpr (std::is_same_v<Stream, HttpTlsStream>) {
      SSL_set_shutdown(stream_.native_handle(), SSL_RECEIVED_SHUTDOWN);
      Lowest().expires_after(kIdleTimeout);
      stream_.async_shutdown(
          [self = this->shared_from_this()](beast::error_code) { self->Lowest().close(); });
    } else {
      Lowest().close();
    }
  }

  void BeginStream(const HttpStreamHandler& handler, const HttpRequest& request) {
    if (parser_->get().method() == http::verb::head)
      return Write({.content_type = "text/event-stream"});
    if (routes_->streams >= kMaxHttpStreams)
      return Write({.status = 503, .body = "too many streams; close some and try again\n"});
    HttpResponse response = handler(request, this->shared_from_this());
    if (response.status != 200) {
      Listen(nullptr, nullptr);
      return Write(std::move(response));
    }
    streaming_ = true;
    ++routes_->streams;
    Lowest().expires_never();
    WaitForEnd();
    BeatLater();
    std::ostringstream head;
    head << BuildStreamHead(parser_->get().version()).base();
    WriteText(std::move(head).str());
  }

  // A client has nothing to say any more; whatever comes is its end.
  void WaitForEnd() {
    stream_.async_read_some(
        asio::buffer(ignored_),
        [self = this->shared_from_this()](beast::error_code, std::size_t) { self->End(); });
  }

  void BeatLater() {
    heartbeat_.expires_after(routes_->heartbeat);
    heartbeat_.async_wait([self = this->shared_from_this()](beast::error_code error) {
      if (error || self->ended_) return;
      if (self->ready()) self->WriteText(":\n\n");
      self->BeatLater();
    });
  }

  void WriteText(std::string text) {
    writing_ = true;
    text_ = std::move(text);
    Lowest().expires_after(kHttpStreamTimeout);
    asio::async_write(stream_, asio::buffer(text_),
                      [self = this->shared_from_this()](beast::error_code error, std::size_t) {
                        self->writing_ = false;
                        if (error) return self->End();
                        // A copy: the owner may let go of the stream meanwhile.
                        const auto on_ready = self->on_ready_;
                        if (on_ready && !self->ended_) on_ready();
                      });
  }

  void End() {
    if (std::exchange(ended_, true)) return;
    if (streaming_) --routes_->streams;
    heartbeat_.cancel();
    Lowest().close();
    on_ready_ = nullptr;
    const auto on_gone = std::exchange(on_gone_, nullptr);
    if (on_gone) on_gone();
  }

  std::shared_ptr<asio::ssl::context> context_;
  Stream stream_;
  asio::steady_timer heartbeat_;
  std::uint64_t handshake_ = 0;  // of the limit; 0: none
  HttpGuard guard_;
  beast::flat_buffer buffer_{kMaxHeaderBytes + kMaxBodyBytes};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::uint64_t requests_ = 0;
  std::uint64_t awaited_ = 0;  // the number of the one that is to be answered; 0: none
  HttpAnswer answer_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  std::shared_ptr<HttpRoutes> routes_;

  // As a stream of events.
  bool streaming_ = false;
  bool writing_ = false;
  bool ended_ = false;
  std::string text_;
  std::array<char, 64> ignored_;
  std::function<void()> on_ready_;
  std::function<void()> on_gone_;
};

}  // namespace muster
