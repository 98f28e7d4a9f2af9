#include "common/job_spec/http_url.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "common/base/strings.h"

namespace muster {
namespace {

constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-._";
constexpr std::string_view kIpv6Characters = "0123456789abcdef:.";

}  // namespace

Result<HostAndPort> ParseHostAndPort(const std::string& text) {
  const Status bad = InvalidArgument("'" + text + "' is not HOST or HOST:PORT");
  const std::string authority = AsciiLower(text);
  HostAndPort out;
  std::size_t end = 0;  // of the host
  if (authority.starts_with('[')) {
    const std::size_t bracket = std::min(authority.find(']'), authority.size());
    out.host = authority.substr(1, bracket - 1);
    end = bracket + 1;
    if (out.host.find_first_not_of(kIpv6Characters) != std::string::npos) return bad;
  } else {
    end = std::min(authority.find(':'), authority.size());
    out.host = authority.substr(0, end);
    if (out.host.find_first_not_of(kNameCharacters) != std::string::npos) return bad;
  }
  if (out.host.empty() || end > authority.size()) return bad;
  if (end == authority.size()) return out;
  const std::string_view port = std::string_view(authority).substr(end);
  const char* const last = port.data() + port.size();
  const auto [stop, error] = std::from_chars(port.data() + 1, last, out.port);
  if (port.front() != ':' || error != std::errc() || stop != last || out.port < 1 ||
      out.port > 65535)
    return bad;
  return out;
}

Result<HttpUrl> ParseHttpUrl(const std::string& url) {
  const Status bad =
      InvalidArgument("'" + url + "' is not a URL of the form http[s]://HOST[:PORT]/PATH");
  HttpUrl out;
  if (url.starts_with("http://")) {
    out.scheme = "http";
  } else if (url.starts_with("https://")) {
    out.scheme = "https";
  } else {
    return bad;
  }
  if (std::any_of(url.begin(), url.end(),
                  [](unsigned char c) { return c <= ' ' || c == 0x7f || c == '\\'; }))
    return bad;
  const std::size_t begin = out.scheme.size() + 3;
  const std::size_t end = std::min(url.find_first_of("/?#", begin), url.size());
  const Result<HostAndPort> where = ParseHostAndPort(url.substr(begin, end - begin));
  if (!where.ok()) return bad;
  out.host = where->host;
  out.port = where->port != 0 ? where->port : out.scheme == "https" ? 443 : 80;
  return out;
}

}  // namespace muster
