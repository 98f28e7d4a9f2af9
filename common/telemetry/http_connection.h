// HttpConnection: the bytes of one connection of an HttpServer, in plain text or over TLS. Private
// to this folder.
//
// Owned by an HttpSession, which the handlers of pending operations keep alive; the loop's thread.
// At most one read and one write are pending. Handlers are functions, so that the compiler builds
// each operation of Asio once for each kind of stream.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "common/base/clock.h"
#include "common/telemetry/beast.h"

namespace muster {

class HttpConnection {
 public:
  using Done = std::function<void(beast::error_code error, std::size_t bytes)>;

  // `context` lives as long as the connection; none: plain text.
  HttpConnection(tcp::socket socket, std::shared_ptr<asio::ssl::context> context);

  // None: plain text.
  SSL* tls();
  // Over TLS alone, before anything else.
  void Handshake(Done done);
  // At least one byte, or an error.
  void ReadSome(asio::mutable_buffer into, Done done);
  // All of it; the bytes outlive the operation. One piece, because Beast's TLS stream takes a long
  // piece after a short one for the end.
  void Write(asio::const_buffer bytes, Done done);
  // Closes at once, and not when the client has had enough. TLS says so first, by which a client
  // can distinguish the end from a cut; the client's own goodbye is taken as said. Calls `done`
  // where it is not closed before.
  void HangUp(Done done);
  void Close() { Lowest().close(); }
  // HttpRequest's; empty: the client is gone.
  std::string PeerAddress();

  // The limit holds for the operations from now on together; they fail when it has passed.
  void ExpireAfter(std::chrono::seconds limit) { Lowest().expires_after(limit); }
  void ExpireNever() { Lowest().expires_never(); }
  asio::any_io_executor Executor() { return Lowest().get_executor(); }

 private:
  using Plain = beast::tcp_stream;
  using Tls = beast::ssl_stream<beast::tcp_stream>;

  Plain& Lowest();

  std::shared_ptr<asio::ssl::context> context_;
  std::variant<Plain, Tls> stream_;
};

}  // namespace muster
