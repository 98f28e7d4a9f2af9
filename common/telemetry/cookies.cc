#include "common/telemetry/cookies.h"

#include <algorithm>

namespace muster {

std::string MakeCookie(std::string_view name, std::string_view value, std::chrono::seconds lasts) {
  return std::string(name) + "=" + std::string(value) +
         "; Path=/; Max-Age=" + std::to_string(lasts.count()) + "; Secure; HttpOnly; SameSite=Lax";
}

std::string_view CookieValue(std::string_view cookies, std::string_view name) {
  std::string_view value;
  bool found = false;
  while (!cookies.empty()) {
    std::string_view cookie = cookies.substr(0, cookies.find(';'));
    cookies.remove_prefix(std::min(cookies.size(), cookie.size() + 1));
    cookie.remove_prefix(std::min(cookie.find_first_not_of(' '), cookie.size()));
    const std::size_t equals = cookie.find('=');
    if (equals == cookie.npos || cookie.substr(0, equals) != name) continue;
    if (found) return {};
    found = true;
    value = cookie.substr(equals + 1);
  }
  return value;
}

}  // namespace muster
