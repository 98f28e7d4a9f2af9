#include "common/telemetry/http_routes.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <string_view>
#include <utility>

#include "common/telemetry/cookies.h"

namespace muster {
namespace {

std::string_view ViewOf(beast::string_view text) { return {text.data(), text.size()}; }

bool IsPort(std::string_view text) {
  return text.empty() ||
         (text.front() == ':' && text.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

// "[::1]:80" and "127.0.0.1:80" without the port and an IPv6 address's brackets; empty where it is
// none of the kind.
std::string HostOf(std::string_view authority) {
  const bool v6 = authority.starts_with('[');
  const std::size_t end = std::min(authority.find(v6 ? ']' : ':'), authority.size());
  const std::string_view rest = authority.substr(std::min(end + (v6 ? 1 : 0), authority.size()));
  return std::string(IsPort(rest) ? authority.substr(v6 ? 1 : 0, end - (v6 ? 1 : 0)) : "");
}

bool IsOwnName(const std::string& host) {
  boost::system::error_code error;
  asio::ip::make_address(host, error);
  return !error || host == "localhost";
}

HttpResponse Refuse(int status, const std::string& why) {
  return {.status = status, .body = why + "\n"};
}

// The owner of a name can make it lead here, an address cannot be made to.
bool HasGoodHost(const HttpMessage& message, bool by_tls, HttpResponse* refusal) {
  const auto hosts = message.equal_range(http::field::host);
  const auto count = std::distance(hosts.first, hosts.second);
  if (count == 0 && message.version() < 11) return true;
  if (count != 1) {
    *refusal = Refuse(400, "a request names its host once");
    return false;
  }
  const std::string host = HostOf(ViewOf(hosts.first->value()));
  if (by_tls || IsOwnName(host)) return true;
  *refusal = Refuse(421, "ask by 127.0.0.1 or localhost; a host of another name is not answered");
  return false;
}

// Browsers say the origin of each request that posts.
bool HasOwnOrigin(const HttpMessage& message) {
  const std::string_view origin = ViewOf(message[http::field::origin]);
  const std::size_t scheme = origin.find("://");
  if (origin.empty()) return message.method() != http::verb::post;
  return (scheme != std::string_view::npos &&
          origin.substr(scheme + 3) == ViewOf(message[http::field::host]));
}

std::string PathOf(const HttpMessage& message) {
  const std::string_view target = ViewOf(message.target());
  return std::string(target.substr(0, target.find('?')));
}

// The handshake of a connection that is kept alive was long ago.
Status CheckPeerNotExpired(const CertificateInfo& peer) {
  if (SystemClock().UnixMillis() < peer.not_after_ms) return OkStatus();
  return Unauthenticated("the certificate of " + IdentityUri(peer.identity) +
                         " has expired; connect with a renewed one");
}

template <typename Message>
void AddCommonFields(Message& message, const std::string& content_policy) {
  message.set(http::field::cache_control, "no-store");
  message.set("Content-Security-Policy", content_policy);
  message.set("X-Content-Type-Options", "nosniff");
  message.set("X-Frame-Options", "DENY");
  message.set("Referrer-Policy", "no-referrer");
  message.set("Cross-Origin-Resource-Policy", "same-origin");
}

}  // namespace

std::optional<CertificateInfo> HttpGuard::PeerOf(std::string_view cookies) const {
  if (certificate || !options || !options->find_session) return certificate;
  const std::string_view session = CookieValue(cookies, kSessionCookie);
  return session.empty() ? std::nullopt : options->find_session(session);
}

Status HttpGuard::Check(const std::string& path, const std::optional<CertificateInfo>& peer) const {
  if (!options) return OkStatus();
  if (peer) MUSTER_RETURN_IF_ERROR(CheckPeerNotExpired(*peer));
  return options->authorize(path, peer ? &*peer : nullptr);
}

const HttpLateHandler* HttpRoutes::FindPost(const std::string& path) const {
  const auto exact = posts.find(path);
  return exact == posts.end() ? nullptr : &exact->second;
}

const HttpRoutes::Route* HttpRoutes::Find(const std::string& path) const {
  if (const auto exact = routes.find(path); exact != routes.end()) return &exact->second;
  for (std::size_t end = path.rfind('/'); end != std::string::npos && end > 0;
       end = path.rfind('/', end - 1)) {
    const auto above = routes.find(path.substr(0, end + 1));
    if (above != routes.end()) return &above->second;
  }
  return nullptr;
}

HttpResponse HttpRoutes::NotFound() const {
  std::string body = "not found; this server has:";
  for (const auto& entry : routes) body += " " + entry.first;
  return Refuse(404, body);
}

bool IsWelcome(const HttpRoutes& routes, const HttpMessage& message, const HttpGuard& guard,
               HttpResponse* refusal) {
  const bool reads = message.method() == http::verb::get || message.method() == http::verb::head;
  const bool posts = message.method() == http::verb::post && routes.FindPost(PathOf(message));
  if (!reads && !posts) {
    *refusal = Refuse(405, "only GET and HEAD are answered");
    return false;
  }
  if (!HasGoodHost(message, guard.options != nullptr, refusal)) return false;
  if (!HasOwnOrigin(message)) {
    *refusal = Refuse(403, "a page of another origin may not read this");
    return false;
  }
  const Status status =
      guard.Check(PathOf(message), guard.PeerOf(ViewOf(message[http::field::cookie])));
  if (!status.ok()) *refusal = Refuse(403, status.message());
  return status.ok();
}

HttpRequest RequestOf(const HttpMessage& message, const HttpGuard& guard) {
  HttpRequest request;
  request.path = PathOf(message);
  const std::string_view target = ViewOf(message.target());
  if (const std::size_t question = target.find('?'); question != std::string_view::npos)
    request.query = target.substr(question + 1);
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view authorization = ViewOf(message[http::field::authorization]);
  if (authorization.starts_with(kScheme)) request.bearer = authorization.substr(kScheme.size());
  request.host = ViewOf(message[http::field::host]);
  request.cookies = ViewOf(message[http::field::cookie]);
  request.csrf = ViewOf(message["X-CSRF-Token"]);
  request.address = guard.address;
  if (!guard.options) return request;
  request.peer = guard.PeerOf(request.cookies);
  request.recheck = [guard, path = request.path, cookies = request.cookies] {
    return guard.Check(path, guard.PeerOf(cookies));
  };
  return request;
}

HttpAnswer BuildAnswer(const HttpMessage& message, HttpResponse response) {
  HttpAnswer answer;
  answer.version(message.version());
  answer.keep_alive(message.keep_alive());
  answer.result(static_cast<unsigned>(response.status));
  if (response.status == 405) answer.set(http::field::allow, "GET, HEAD");
  answer.set(http::field::content_type, response.content_type);
  if (!response.location.empty()) answer.set(http::field::location, response.location);
  for (const std::string& cookie : response.cookies) answer.insert(http::field::set_cookie, cookie);
  AddCommonFields(answer, response.content_policy);
  if (message.method() == http::verb::head) {
    answer.content_length(response.body.size());
  } else {
    answer.body() = std::move(response.body);
    answer.prepare_payload();
  }
  return answer;
}

http::response<http::empty_body> BuildStreamHead(unsigned version) {
  http::response<http::empty_body> head;
  head.version(version);
  head.keep_alive(false);
  head.result(http::status::ok);
  head.set(http::field::content_type, "text/event-stream");
  AddCommonFields(head, kNoContentPolicy);
  return head;
}

}  // namespace muster
