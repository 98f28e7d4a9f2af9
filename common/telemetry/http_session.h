// HttpSession: one connection of an HttpServer: read, answer, repeat while it is kept alive, or end
// as a stream of events. Private to this folder.
//
// Owns itself through the handlers of its pending operation, and through the reply that a handler
// keeps; the loop's thread. The connection's timer bounds each operation, but for the reading
// beside a stream of events, which only waits for the client to go.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/telemetry/beast.h"
#include "common/telemetry/http_connection.h"
#include "common/telemetry/http_handler.h"
#include "common/telemetry/http_routes.h"
#include "common/telemetry/tls_context.h"

namespace muster {

class HttpSession : public HttpStream, public std::enable_shared_from_this<HttpSession> {
 public:
  static constexpr std::size_t kMaxHeaderBytes = 8 << 10;
  static constexpr std::size_t kMaxBodyBytes = 1 << 10;
  static constexpr auto kIdleTimeout = std::chrono::seconds(10);

  // `context`: none, for plain text.
  HttpSession(std::shared_ptr<HttpRoutes> routes, tcp::socket socket,
              std::shared_ptr<asio::ssl::context> context = nullptr);
  ~HttpSession() override;

  // Reads the next request and answers it.
  void Read();
  // Over TLS: first agrees with the client, and who that is.
  void Handshake(std::shared_ptr<const HttpTlsOptions> options);

  // --- HttpStream ---

  bool ready() const override { return streaming_ && !writing_ && !ended_; }
  bool Send(std::string_view event, std::string_view data) override;
  void Listen(std::function<void()> on_ready, std::function<void()> on_gone) override;
  void Close() override;

 private:
  void Parse();
  void Answer();
  void Ask(const HttpLateHandler& handler, const HttpRequest& request);
  void Write(HttpResponse response, bool last = false);
  void AskForStream(const HttpStreamHandler& handler, const HttpRequest& request);
  void BeginStream(HttpResponse response);
  void WaitForEnd();
  void HeartbeatLater();
  void WriteText(std::string text);
  void End();

  HttpConnection connection_;
  asio::steady_timer heartbeat_;
  std::uint64_t handshake_ = 0;  // of the limit; 0: none
  std::uint64_t waiting_ = 0;    // its place among the routes' waiting connections
  HttpGuard guard_;
  beast::flat_buffer buffer_{kMaxHeaderBytes + kMaxBodyBytes};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::uint64_t requests_ = 0;
  std::uint64_t awaited_ = 0;  // the number of the one that is to be answered; 0: none
  std::string text_;           // that is being sent
  std::shared_ptr<HttpRoutes> routes_;

  // As a stream of events.
  bool counted_ = false;  // among the routes' streams, also while it is asked for
  bool streaming_ = false;
  bool writing_ = false;
  bool ended_ = false;
  std::array<char, 64> ignored_;
  std::function<void()> on_ready_;
  std::function<void()> on_gone_;
};

}  // namespace muster
