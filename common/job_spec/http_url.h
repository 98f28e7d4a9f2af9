// HttpUrl: the parts of a URL that decide where a request goes.
//
// Strict on purpose: what this accepts, every reader of URLs takes apart in the same way. No user
// names, no backslashes, no escapes in the host. Pure functions; any thread.
#pragma once

#include <string>

#include "common/base/result.h"

namespace muster {

struct HttpUrl {
  std::string scheme;  // http, https
  std::string host;    // in lower case; an IPv6 address without brackets
  int port = 0;        // the scheme's where none is named

  friend bool operator==(const HttpUrl&, const HttpUrl&) = default;
};

// "http[s]://HOST[:PORT][/PATH][?QUERY]"; HOST is a name, an IPv4 address or an IPv6 one in
// brackets. kInvalidArgument for everything else.
Result<HttpUrl> ParseHttpUrl(const std::string& url);

// "HOST[:PORT]" as within a URL; 0: no port is named.
struct HostAndPort {
  std::string host;
  int port = 0;
};
Result<HostAndPort> ParseHostAndPort(const std::string& text);

}  // namespace muster
