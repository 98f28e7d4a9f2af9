// PostJson: one HTTP/1.1 POST on a daemon's event loop.
//
// Plain http only. Loop thread only; nothing blocks. What has begun ends by its limit at the
// latest, and then calls `done` once; who is gone by then guards `done` itself.
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/runtime/event_loop.h"

namespace muster {

struct HttpUrl {
  std::string host;
  std::string port = "80";
  std::string target = "/";  // path and query

  friend bool operator==(const HttpUrl&, const HttpUrl&) = default;
};

// "http://HOST[:PORT][/PATH][?QUERY]"; HOST is a name, an IPv4 address or an IPv6 one in brackets.
Result<HttpUrl> ParseHttpUrl(const std::string& url);

struct HttpReply {
  Status status;  // of the exchange; kUnavailable, kDeadlineExceeded
  int code = 0;   // of the reply; 0: there was none

  bool ok() const { return code / 100 == 2; }
  // Whether the same request may do better later.
  bool WorthAnotherTry() const { return code == 0 || code == 408 || code == 429 || code >= 500; }
};

void PostJson(EventLoop& loop, const HttpUrl& url, std::string body, Duration limit,
              std::function<void(const HttpReply&)> done);

}  // namespace muster
