#include "common/http/http_client.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cctype>
#include <mutex>

#include "common/base/strings.h"
#include "common/base/version.h"

namespace muster {
namespace {

constexpr int kMaxRedirects = 10;
constexpr long kConnectSeconds = 15;
constexpr long kStallSeconds = 30;
constexpr std::size_t kMaxHeaders = 256;

using UrlHandle = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

std::string UrlPart(const UrlHandle& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return {};
  const std::unique_ptr<char, decltype(&curl_free)> owned(text, curl_free);
  return text;
}

// "https://host:443"; empty for what is no URL.
std::string Origin(const std::string& text) {
  const UrlHandle url(curl_url(), curl_url_cleanup);
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return {};
  return UrlPart(url, CURLUPART_SCHEME) + "://" + AsciiLower(UrlPart(url, CURLUPART_HOST)) + ":" +
         UrlPart(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) {
    text.remove_suffix(1);
  }
  return text;
}

// What libcurl's callbacks work on during one request.
struct Exchange {
  CURL* handle;
  const HttpClientRequest& request;
  const HttpSink& sink;
  HttpClientResponse response;
  Status refused;          // by the sink
  Status address_refused;  // by check_address
};

std::size_t OnHeader(char* bytes, std::size_t size, std::size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::string_view line(bytes, size * count);
  // A proxy's answer, or one that says to go on, comes before the real one.
  if (line.starts_with("HTTP/")) exchange.response.headers.clear();
  const std::size_t colon = line.find(':');
  if (colon != std::string_view::npos && exchange.response.headers.size() < kMaxHeaders) {
    exchange.response.headers[AsciiLower(std::string(line.substr(0, colon)))] =
        Trimmed(line.substr(colon + 1));
  }
  return size * count;
}

std::size_t OnBody(char* bytes, std::size_t size, std::size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  curl_easy_getinfo(exchange.handle, CURLINFO_RESPONSE_CODE, &exchange.response.code);
  if (exchange.response.code >= 300 && exchange.response.code < 400) return size * count;
  exchange.refused = exchange.sink(exchange.response, std::string_view(bytes, size * count));
  return exchange.refused.ok() ? size * count : 0;
}

Result<IpAddress> AddressOf(const curl_sockaddr& peer) {
  if (peer.family == AF_INET)
    return IpAddress::FromV4(&reinterpret_cast<const sockaddr_in*>(&peer.addr)->sin_addr);
  if (peer.family == AF_INET6)
    return IpAddress::FromV6(&reinterpret_cast<const sockaddr_in6*>(&peer.addr)->sin6_addr);
  return InvalidArgument("an address that is neither IPv4 nor IPv6");
}

curl_socket_t OpenSocket(void* user, curlsocktype, curl_sockaddr* peer) {
  auto& exchange = *static_cast<Exchange*>(user);
  if (exchange.request.check_address) {
    const Result<IpAddress> address = AddressOf(*peer);
    exchange.address_refused =
        address.ok() ? exchange.request.check_address(*address) : address.status();
    if (!exchange.address_refused.ok()) return CURL_SOCKET_BAD;
  }
  return ::socket(peer->family, peer->socktype | SOCK_CLOEXEC, peer->protocol);
}

int OnProgress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& exchange = *static_cast<Exchange*>(user);
  return exchange.request.cancelled != nullptr && exchange.request.cancelled->load() ? 1 : 0;
}

class CurlClient : public HttpClient {
 public:
  CurlClient() {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    handle_ = curl_easy_init();
  }
  ~CurlClient() override { curl_easy_cleanup(handle_); }
  CurlClient(const CurlClient&) = delete;
  CurlClient& operator=(const CurlClient&) = delete;

  Result<HttpClientResponse> Send(const HttpClientRequest& request, const HttpSink& sink) override {
    Exchange exchange{.handle = handle_,
                      .request = request,
                      .sink = sink,
                      .response = {},
                      .refused = {},
                      .address_refused = {}};
    char why[CURL_ERROR_SIZE] = "";
    SetUp(request, &exchange, why);
    curl_slist* headers = nullptr;
    if (!request.token.empty()) {
      headers = curl_slist_append(headers, ("Authorization: Bearer " + request.token).c_str());
    }
    if (request.json) {
      headers = curl_slist_append(headers, "Content-Type: application/json");
    }
    // A second of waiting for small bodies.
    if (request.json || request.form) headers = curl_slist_append(headers, "Expect:");
    curl_easy_setopt(handle_, CURLOPT_HTTPHEADER, headers);
    const CURLcode code = curl_easy_perform(handle_);
    curl_slist_free_all(headers);
    if (!exchange.refused.ok()) return exchange.refused;
    if (code == CURLE_ABORTED_BY_CALLBACK) return Cancelled(request.url + ": given up");
    if (code != CURLE_OK && !exchange.address_refused.ok()) return exchange.address_refused;
    if (code != CURLE_OK) {
      return Unavailable(request.url + ": " +
                         (why[0] != '\0' ? std::string(why) : curl_easy_strerror(code)));
    }
    curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &exchange.response.code);
    char* redirect = nullptr;
    curl_easy_getinfo(handle_, CURLINFO_REDIRECT_URL, &redirect);
    if (redirect != nullptr) exchange.response.redirect = redirect;
    return std::move(exchange.response);
  }

 private:
  void SetUp(const HttpClientRequest& request, Exchange* exchange, char* why) {
    curl_easy_reset(handle_);
    const auto set = [this](CURLoption option, auto value) {
      curl_easy_setopt(handle_, option, value);
    };
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, request.only_https ? "https" : "http,https");
    if (request.only_https) set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    if (!request.ca_pem.empty()) {
      curl_blob authorities{const_cast<char*>(request.ca_pem.data()), request.ca_pem.size(),
                            CURL_BLOB_COPY};
      set(CURLOPT_CAINFO_BLOB, &authorities);
    }
    set(CURLOPT_USERAGENT, (std::string("muster/") + kVersion).c_str());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, kStallSeconds);
    set(CURLOPT_ERRORBUFFER, why);
    set(CURLOPT_NOBODY, request.head ? 1L : 0L);
    if (const auto& body = request.json ? request.json : request.form; body) {
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body->size()));
      set(CURLOPT_POSTFIELDS, body->data());
    }
    if (request.limit > Duration::zero())
      set(CURLOPT_TIMEOUT_MS, static_cast<long>(ToSeconds(request.limit) * 1000));
    if (!request.may_use_proxy) set(CURLOPT_PROXY, "");
    set(CURLOPT_OPENSOCKETFUNCTION, &OpenSocket);
    set(CURLOPT_OPENSOCKETDATA, static_cast<void*>(exchange));
    set(CURLOPT_XFERINFOFUNCTION, &OnProgress);
    set(CURLOPT_XFERINFODATA, static_cast<void*>(exchange));
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_QUICK_EXIT, 1L);  // a resolver that hangs holds up no end
    if (request.offset > 0) {
      set(CURLOPT_RANGE, (std::to_string(request.offset) + "-").c_str());
    }
    set(CURLOPT_HEADERFUNCTION, &OnHeader);
    set(CURLOPT_HEADERDATA, static_cast<void*>(exchange));
    set(CURLOPT_WRITEFUNCTION, &OnBody);
    set(CURLOPT_WRITEDATA, static_cast<void*>(exchange));
  }

  CURL* handle_;
};

}  // namespace

std::string HttpClientResponse::Header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? std::string() : it->second;
}

std::unique_ptr<HttpClient> MakeHttpClient() { return std::make_unique<CurlClient>(); }

std::string FormText(const std::vector<std::pair<std::string, std::string>>& fields) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  constexpr std::string_view kHexDigits = "0123456789ABCDEF";
  std::string text;
  const auto add = [&](std::string_view part) {
    for (const char c : part) {
      const auto byte = static_cast<unsigned char>(c);
      if (kPlain.find(c) != kPlain.npos)
        text += c;
      else
        text += {'%', kHexDigits[byte >> 4], kHexDigits[byte & 15]};
    }
  };
  for (const auto& [name, value] : fields) {
    if (!text.empty()) text += '&';
    add(name);
    text += '=';
    add(value);
  }
  return text;
}

bool IsSameOrigin(const std::string& a, const std::string& b) {
  const std::string origin = Origin(a);
  return !origin.empty() && origin == Origin(b);
}

Result<HttpClientResponse> SendFollowing(HttpClient& client, HttpClientRequest request,
                                         const HttpSink& sink) {
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    MUSTER_ASSIGN_OR_RETURN(HttpClientResponse response, client.Send(request, sink));
    if (response.redirect.empty()) return response;
    if (!IsSameOrigin(request.url, response.redirect)) {
      if (request.head) return response;
      request.token.clear();
    }
    request.url = response.redirect;
  }
  return Unavailable(request.url + ": more than " + std::to_string(kMaxRedirects) + " redirects");
}

}  // namespace muster
