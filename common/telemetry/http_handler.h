// What the handlers of an HttpServer get and give, and what its TLS is to be. Values; the loop's
// thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/security/certificate.h"
#include "common/telemetry/http_stream.h"

namespace muster {

// Allows nothing, also where a browser takes an answer for a document.
inline constexpr char kNoContentPolicy[] = "default-src 'none'; frame-ancestors 'none'";

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::string content_policy = kNoContentPolicy;  // Content-Security-Policy
};

struct HttpRequest {
  std::string path;             // as it was sent, without the query
  std::string query;            // without '?'
  std::string bearer;           // of "Authorization: Bearer ..."; empty: none
  bool by_certificate = false;  // over TLS, by a client that `authorize` let in
  // Over TLS: whether `authorize` would still let the client in. A stream calls it now and then.
  std::function<Status()> recheck;
};

// Answers one request: once, on the loop's thread, now or later. Dropped without having been
// called, it closes the connection; so its keeper must have a deadline.
using HttpResponder = std::function<void(HttpResponse)>;

using HttpHandler = std::function<HttpResponse(const std::string& query)>;
using HttpLateHandler = std::function<void(const HttpRequest& request, HttpResponder reply)>;
// What of it is not OK is sent instead of a stream.
using HttpStreamHandler =
    std::function<HttpResponse(const HttpRequest& request, std::shared_ptr<HttpStream> stream)>;

struct HttpTlsOptions {
  std::string credentials_dir;  // followed: a renewed certificate is shown from then on
  // Whether the peer, whose certificate is good still, may have what is at `path`; the message of a
  // refusal is sent with 403.
  std::function<Status(const std::string& path, const CertificateInfo& peer)> authorize;
};

}  // namespace muster
