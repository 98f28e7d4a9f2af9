// Cookies as a server sets and reads them (RFC 6265): for this host alone, over TLS alone, unseen
// by scripts, and sent along where a link leads here, but with no request that another site makes.
//
// Pure functions; any thread.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace muster {

// What `__Host-` begins is believed by a browser only from this host, with Secure and Path=/.
inline constexpr char kSessionCookie[] = "__Host-muster-session";

// The value of Set-Cookie; without time left, the browser drops the cookie.
std::string MakeCookie(std::string_view name, std::string_view value, std::chrono::seconds lasts);

// The value of a cookie in "a=b; c=d"; empty: it is not there, or twice.
std::string_view CookieValue(std::string_view cookies, std::string_view name);

}  // namespace muster
