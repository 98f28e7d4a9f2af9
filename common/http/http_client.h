// HttpClient: one HTTP request at a time, without following redirects; libcurl behind it.
//
// An object belongs to one thread. Waits are bounded: 15 s to connect, 30 s without a byte, and the
// request's own limit. Proxies are those of the environment (https_proxy, no_proxy), unless the
// request refuses them.
// Errors: kUnavailable for a connection that failed or broke off, which another try may mend;
// kCancelled where `cancelled` has become true; the status of `check_address` where it has refused
// every address; the sink's own status where it refuses bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/net/ip_address.h"

namespace muster {

struct HttpClientRequest {
  std::string url;
  bool head = false;
  std::string token = {};                // sent as Authorization: Bearer; empty: none
  std::int64_t offset = 0;               // Range: bytes=OFFSET-
  std::optional<std::string> json = {};  // the body of a POST; nothing: a GET
  std::optional<std::string> form = {};  // the same, of fields (FormText)
  Duration limit = Duration::zero();     // of the whole exchange; zero: none
  bool may_use_proxy = true;
  bool only_https = false;  // another scheme fails
  std::string ca_pem = {};  // authorities that are believed besides the system's
  // Called with each address right before the connection to it, so a name cannot resolve to another
  // address in between; with a proxy, the address is the proxy's. An error refuses the address. An
  // empty function allows all.
  std::function<Status(const IpAddress&)> check_address = {};
  const std::atomic<bool>* cancelled = nullptr;  // looked at once a second at least
};

struct HttpClientResponse {
  long code = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string redirect;                        // of a 3xx: where to, absolute; else empty

  // Empty: there is none.
  std::string Header(const std::string& name) const;
};

// The body's bytes as they come; `head` holds code and headers. Bodies of redirects are dropped.
using HttpSink = std::function<Status(const HttpClientResponse& head, std::string_view bytes)>;

class HttpClient {
 public:
  virtual ~HttpClient() = default;
  virtual Result<HttpClientResponse> Send(const HttpClientRequest& request,
                                          const HttpSink& sink) = 0;
};

std::unique_ptr<HttpClient> MakeHttpClient();

// "grant_type=a&code=b%20c": a query, or the body of a POST. Pure.
std::string FormText(const std::vector<std::pair<std::string, std::string>>& fields);

// Whether two URLs have scheme, host and port in common: only then may a redirect get the token of
// the request. Pure.
bool IsSameOrigin(const std::string& a, const std::string& b);

// Sends a request and follows redirects, ten at most, the token only to the first one's origin. A
// HEAD stops at a redirect to another origin: the Hub's own answer carries what was asked for.
Result<HttpClientResponse> SendFollowing(HttpClient& client, HttpClientRequest request,
                                         const HttpSink& sink);

}  // namespace muster
