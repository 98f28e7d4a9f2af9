// HttpRoutes: which handler answers a request, what every answer and refusal says in its head, and
// how many connections there are. Private to this folder.
//
// Owned by an HttpServer and shared with its connections; the loop's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "common/base/clock.h"
#include "common/telemetry/beast.h"
#include "common/telemetry/handshake_limit.h"
#include "common/telemetry/http_handler.h"

namespace muster {

using HttpMessage = http::request<http::string_body>;
using HttpAnswer = http::response<http::string_body>;

// Who is at the other end of a connection, and what that client may have.
struct HttpGuard {
  std::shared_ptr<const HttpTlsOptions> options;  // none, in plain text: every client may have all
  std::optional<CertificateInfo> certificate;     // none: the client has shown none
  std::string address;                            // HttpRequest's

  // Whom the request counts as: by the certificate, or by the session that its cookies name.
  std::optional<CertificateInfo> PeerOf(std::string_view cookies) const;
  Status Check(const std::string& path, const std::optional<CertificateInfo>& peer) const;
};

struct HttpRoutes {
  using Route = std::variant<HttpLateHandler, HttpStreamHandler>;

  const Route* Find(const std::string& path) const;
  // nullptr: nothing is posted there.
  const HttpLateHandler* FindPost(const std::string& path) const;
  HttpResponse NotFound() const;

  std::map<std::string, Route> routes;
  std::map<std::string, HttpLateHandler> posts;
  Duration heartbeat = kHttpHeartbeat;
  int connections = 0;
  int streams = 0;
  // How to hang up on each connection that waits for a request, the oldest first.
  std::map<std::uint64_t, std::function<void()>> waiting;
  std::uint64_t next_waiting = 1;
  HandshakeLimit handshakes;
};

// Whether it is answered at all; where not, `refusal` is what is sent.
bool IsWelcome(const HttpRoutes& routes, const HttpMessage& message, const HttpGuard& guard,
               HttpResponse* refusal);
HttpRequest RequestOf(const HttpMessage& message, const HttpGuard& guard);
// The answer to `message`, which may be a HEAD.
HttpAnswer BuildAnswer(const HttpMessage& message, HttpResponse response);
// What a stream of events begins with; its connection serves nothing else afterwards.
http::response<http::empty_body> BuildStreamHead(unsigned version);

}  // namespace muster
