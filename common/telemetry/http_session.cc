#include "common/telemetry/http_session.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "common/base/clock.h"

namespace muster {
namespace {

constexpr std::size_t kReadBytes = 4096;

template <typename Head>
std::string TextOf(const Head& head) {
  std::ostringstream text;
  text << head;
  return std::move(text).str();
}

}  // namespace

HttpSession::HttpSession(std::shared_ptr<HttpRoutes> routes, tcp::socket socket,
                         std::shared_ptr<asio::ssl::context> context)
    : connection_(std::move(socket), std::move(context)),
      heartbeat_(connection_.Executor()),
      routes_(std::move(routes)) {
  ++routes_->connections;
}

HttpSession::~HttpSession() {
  --routes_->connections;
  routes_->handshakes.End(handshake_);
  routes_->waiting.erase(waiting_);
  if (counted_) --routes_->streams;
}

void HttpSession::Handshake(std::shared_ptr<const HttpTlsOptions> options) {
  const auto has_spoken = [this] { return SSL_get_state(connection_.tls()) != TLS_ST_BEFORE; };
  handshake_ =
      routes_->handshakes.Begin({has_spoken, [this] { connection_.Close(); }}, SystemClock().Now());
  connection_.ExpireAfter(kIdleTimeout);
  connection_.Handshake([self = shared_from_this(), options](beast::error_code error, std::size_t) {
    self->routes_->handshakes.End(self->handshake_);
    if (error) return;
    const Result<std::optional<CertificateInfo>> peer = PeerCertificate(self->connection_.tls());
    if (!peer.ok()) return;
    self->guard_ = {options, *peer, self->connection_.PeerAddress()};
    self->Read();
  });
}

void HttpSession::Read() {
  parser_.emplace();
  parser_->eager(true);
  parser_->header_limit(kMaxHeaderBytes);
  parser_->body_limit(kMaxBodyBytes);
  waiting_ = routes_->next_waiting++;
  routes_->waiting.emplace(waiting_, [this] { connection_.Close(); });
  connection_.ExpireAfter(kIdleTimeout);
  Parse();
}

// What has come, which may be the beginning of the next request too, and then more of it. A request
// that is too long or no HTTP ends the connection.
void HttpSession::Parse() {
  beast::error_code error;
  if (buffer_.size() > 0) buffer_.consume(parser_->put(buffer_.data(), error));
  if (error && error != http::error::need_more) return;
  if (parser_->is_done()) return Answer();
  const std::size_t room = std::min(buffer_.max_size() - buffer_.size(), kReadBytes);
  if (room == 0) return;
  connection_.ReadSome(buffer_.prepare(room),
                       [self = shared_from_this()](beast::error_code failed, std::size_t bytes) {
                         if (failed) return;
                         self->buffer_.commit(bytes);
                         self->Parse();
                       });
}

bool HttpSession::Send(std::string_view event, std::string_view data) {
  if (!ready()) return false;
  std::string text;
  text.reserve(event.size() + data.size() + 16);
  text.append("event: ").append(event).append("\ndata: ").append(data).append("\n\n");
  WriteText(std::move(text));
  return true;
}

void HttpSession::Listen(std::function<void()> on_ready, std::function<void()> on_gone) {
  on_ready_ = std::move(on_ready);
  on_gone_ = std::move(on_gone);
}

void HttpSession::Close() {
  on_gone_ = nullptr;
  End();
}

void HttpSession::Answer() {
  routes_->waiting.erase(waiting_);
  const HttpMessage& message = parser_->get();
  HttpResponse refusal;
  if (!IsWelcome(*routes_, message, guard_, &refusal))
    return Write(std::move(refusal), /*last=*/true);
  const HttpRequest request = RequestOf(message, guard_);
  if (message.method() == http::verb::post) return Ask(*routes_->FindPost(request.path), request);
  const HttpRoutes::Route* route = routes_->Find(request.path);
  if (route == nullptr) return Write(routes_->NotFound());
  if (const auto* stream = std::get_if<HttpStreamHandler>(route))
    return AskForStream(*stream, request);
  Ask(std::get<HttpLateHandler>(*route), request);
}

void HttpSession::Ask(const HttpLateHandler& handler, const HttpRequest& request) {
  awaited_ = ++requests_;
  handler(request, [self = shared_from_this(), number = requests_](HttpResponse response) {
    if (self->awaited_ != number) return;
    self->awaited_ = 0;
    self->Write(std::move(response));
  });
}

// After the last one the connection ends, whatever the client has asked for.
void HttpSession::Write(HttpResponse response, bool last) {
  HttpAnswer answer = BuildAnswer(parser_->get(), std::move(response));
  if (last) answer.keep_alive(false);
  text_ = TextOf(answer.base());
  if (parser_->get().method() != http::verb::head) text_ += answer.body();
  connection_.ExpireAfter(kIdleTimeout);
  connection_.Write(asio::buffer(text_), [self = shared_from_this(), goes_on = answer.keep_alive()](
                                             beast::error_code error, std::size_t) {
    if (error) return;
    if (goes_on) return self->Read();
    self->connection_.ExpireAfter(kIdleTimeout);
    self->connection_.HangUp([self](beast::error_code, std::size_t) { self->connection_.Close(); });
  });
}

void HttpSession::AskForStream(const HttpStreamHandler& handler, const HttpRequest& request) {
  if (parser_->get().method() == http::verb::head)
    return Write({.content_type = "text/event-stream"});
  if (routes_->streams >= kMaxHttpStreams)
    return Write({.status = 503, .body = "too many streams; close some and try again\n"});
  counted_ = true;
  ++routes_->streams;
  awaited_ = ++requests_;
  const auto reply = [self = shared_from_this(), number = requests_](HttpResponse response) {
    if (self->awaited_ != number) return;
    self->awaited_ = 0;
    self->BeginStream(std::move(response));
  };
  handler(request, shared_from_this(), reply);
}

void HttpSession::BeginStream(HttpResponse response) {
  if (ended_) return;
  if (response.status != 200) {
    counted_ = false;
    --routes_->streams;
    Listen(nullptr, nullptr);
    return Write(std::move(response));
  }
  streaming_ = true;
  connection_.ExpireNever();
  WaitForEnd();
  HeartbeatLater();
  WriteText(TextOf(BuildStreamHead(parser_->get().version()).base()));
}

// A client has nothing to say any more; whatever comes is its end.
void HttpSession::WaitForEnd() {
  connection_.ReadSome(
      asio::buffer(ignored_),
      [self = shared_from_this()](beast::error_code, std::size_t) { self->End(); });
}

void HttpSession::HeartbeatLater() {
  heartbeat_.expires_after(routes_->heartbeat);
  heartbeat_.async_wait([self = shared_from_this()](beast::error_code error) {
    if (error || self->ended_) return;
    if (self->ready()) self->WriteText(":\n\n");
    self->HeartbeatLater();
  });
}

void HttpSession::WriteText(std::string text) {
  writing_ = true;
  text_ = std::move(text);
  connection_.ExpireAfter(kHttpStreamTimeout);
  connection_.Write(asio::buffer(text_),
                    [self = shared_from_this()](beast::error_code error, std::size_t) {
                      self->writing_ = false;
                      if (error) return self->End();
                      // A copy: the owner may let go of the stream meanwhile.
                      const auto on_ready = self->on_ready_;
                      if (on_ready && !self->ended_) on_ready();
                    });
}

void HttpSession::End() {
  if (std::exchange(ended_, true)) return;
  if (std::exchange(counted_, false)) --routes_->streams;
  heartbeat_.cancel();
  connection_.Close();
  on_ready_ = nullptr;
  const auto on_gone = std::exchange(on_gone_, nullptr);
  if (on_gone) on_gone();
}

}  // namespace muster
