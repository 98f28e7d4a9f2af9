// What the handlers of an HttpServer get and give, and what its TLS is to be. Values; the loop's
// thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/security/certificate.h"
#include "common/security/site_certificate.h"
#include "common/telemetry/http_stream.h"

namespace muster {

// Allows nothing, also where a browser takes an answer for a document.
inline constexpr char kNoContentPolicy[] = "default-src 'none'; frame-ancestors 'none'";

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::string content_policy = kNoContentPolicy;  // Content-Security-Policy
  std::string location;                           // of a redirect; empty: it is none
  std::vector<std::string> cookies;               // Set-Cookie (cookies.h)
};

struct HttpRequest {
  std::string path;     // as it was sent, without the query
  std::string query;    // without '?'
  std::string bearer;   // of "Authorization: Bearer ..."; empty: none
  std::string host;     // as the client names it; may be empty
  std::string cookies;  // as they were sent: "a=b; c=d"
  std::string csrf;     // of "X-CSRF-Token"
  std::string address;  // of the client, as gRPC writes it: "ipv4:10.0.0.1:4711"
  // Over TLS: who it is, by certificate or session. None: `authorize` lets strangers in.
  std::optional<CertificateInfo> peer;
  // Over TLS: whether `authorize` would still let the client in. A stream calls it now and then.
  std::function<Status()> recheck;
};

// Answers one request: once, on the loop's thread, now or later. Dropped without having been
// called, it closes the connection; so its keeper must have a deadline.
using HttpResponder = std::function<void(HttpResponse)>;

using HttpHandler = std::function<HttpResponse(const std::string& query)>;
using HttpLateHandler = std::function<void(const HttpRequest& request, HttpResponder reply)>;
// Answers as a late handler does. With 200 the stream begins; anything else is sent in its place.
using HttpStreamHandler = std::function<void(
    const HttpRequest& request, std::shared_ptr<HttpStream> stream, HttpResponder reply)>;

struct HttpTlsOptions {
  std::string credentials_dir;  // followed: a renewed certificate is shown from then on
  // Whether the peer, whose certificate or session is good still, may have what is at `path`; the
  // message of a refusal is sent with 403. nullptr: a client without either.
  std::function<Status(const std::string& path, const CertificateInfo* peer)> authorize;
  // Whom the value of the session cookie stands for, if anybody. Set: clients need no certificate.
  std::function<std::optional<CertificateInfo>(std::string_view session)> find_session = nullptr;
  // What is shown to clients that ask for one of its names; followed too.
  SiteCertificateFiles site = {};
};

}  // namespace muster
