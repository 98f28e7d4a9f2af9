#include "common/oidc/issuer.h"

#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "common/oidc/one_line.h"

namespace muster {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDocumentBytes = 1 << 20;
constexpr Duration kDocumentLimit = std::chrono::seconds(10);
constexpr std::size_t kMaxUrlBytes = 1024;
constexpr std::string_view kScheme = "https://";

// Also of what a document names: nothing in it may break out of a request's first line.
bool IsHttpsUrl(std::string_view url) {
  return url.size() <= kMaxUrlBytes && url.size() > kScheme.size() && url.starts_with(kScheme) &&
         url[kScheme.size()] != '/' &&
         std::all_of(url.begin(), url.end(), [](unsigned char c) { return c > ' ' && c < 0x7f; });
}

Result<std::string> Url(const json& document, const char* name, bool required) {
  const auto found = document.find(name);
  if (found == document.end() && !required) return std::string();
  if (found == document.end() || !found->is_string() ||
      !IsHttpsUrl(found->get_ref<const std::string&>()))
    return InvalidArgument(std::string("its '") + name + "' is no URL of https");
  return found->get<std::string>();
}

}  // namespace

Status CheckIssuerUrl(std::string_view url) {
  const std::string_view host = url.substr(std::min(url.size(), kScheme.size()));
  if (IsHttpsUrl(url) && host.find_first_of("?#@\\") == host.npos) return OkStatus();
  return InvalidArgument("'" + WithoutControls(std::string(url.substr(0, kMaxUrlBytes))) +
                         "' is no issuer: expected https://HOST/PATH, as the issuer calls itself");
}

std::string DiscoveryUrl(const std::string& issuer) {
  return (issuer.ends_with('/') ? issuer.substr(0, issuer.size() - 1) : issuer) +
         "/.well-known/openid-configuration";
}

Result<IssuerMetadata> ParseDiscovery(const std::string& issuer, std::string_view text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return InvalidArgument("it is no JSON object");
  IssuerMetadata metadata;
  MUSTER_ASSIGN_OR_RETURN(metadata.issuer, Url(document, "issuer", true));
  if (metadata.issuer != issuer)
    return InvalidArgument("it is the document of '" + metadata.issuer + "'");
  MUSTER_ASSIGN_OR_RETURN(metadata.authorization_endpoint,
                          Url(document, "authorization_endpoint", true));
  MUSTER_ASSIGN_OR_RETURN(metadata.token_endpoint, Url(document, "token_endpoint", true));
  MUSTER_ASSIGN_OR_RETURN(metadata.jwks_uri, Url(document, "jwks_uri", true));
  MUSTER_ASSIGN_OR_RETURN(metadata.device_authorization_endpoint,
                          Url(document, "device_authorization_endpoint", false));
  MUSTER_ASSIGN_OR_RETURN(metadata.revocation_endpoint,
                          Url(document, "revocation_endpoint", false));
  const auto scopes = document.find("scopes_supported");
  if (scopes != document.end() && scopes->is_array())
    for (const json& scope : *scopes)
      if (scope.is_string()) metadata.scopes.push_back(scope.get<std::string>());
  return metadata;
}

Result<IssuerAnswer> AskIssuer(HttpClient& client, const IssuerExchange& exchange,
                               const std::string& url, const std::optional<std::string>& form) {
  IssuerAnswer answer;
  MUSTER_ASSIGN_OR_RETURN(
      const HttpClientResponse response,
      client.Send({.url = url,
                   .form = form,
                   .limit = kDocumentLimit,
                   .only_https = true,
                   .ca_pem = exchange.ca_pem,
                   .cancelled = exchange.cancelled},
                  [&](const HttpClientResponse&, std::string_view bytes) {
                    if (answer.body.size() + bytes.size() > kMaxDocumentBytes)
                      return Unavailable(url + ": the answer is larger than 1 MiB");
                    answer.body += bytes;
                    return OkStatus();
                  }));
  answer.code = response.code;
  return answer;
}

Result<std::string> FetchDocument(HttpClient& client, const IssuerExchange& exchange,
                                  const std::string& url) {
  MUSTER_ASSIGN_OR_RETURN(IssuerAnswer answer, AskIssuer(client, exchange, url));
  if (answer.code != 200)
    return Unavailable(url + ": the issuer answers with " + std::to_string(answer.code));
  return std::move(answer.body);
}

TokenVerifier::TokenVerifier(std::string issuer, Fetch fetch)
    : issuer_(std::move(issuer)), fetch_(std::move(fetch)) {}

Status TokenVerifier::FetchKeys(TimePoint now) {
  if (!metadata_ || now - metadata_at_ >= kMetadataLasts) {
    const std::string url = DiscoveryUrl(issuer_);
    MUSTER_ASSIGN_OR_RETURN(const std::string text, fetch_(url));
    auto metadata = ParseDiscovery(issuer_, text);
    if (!metadata.ok()) return Unavailable(url + ": " + metadata.status().message());
    metadata_ = *std::move(metadata);
    metadata_at_ = now;
  }
  MUSTER_ASSIGN_OR_RETURN(const std::string text, fetch_(metadata_->jwks_uri));
  auto keys = JwkSet::Parse(text);
  if (!keys.ok()) return Unavailable(metadata_->jwks_uri + ": " + keys.status().message());
  keys_ = *std::move(keys);
  keys_at_ = now;
  return OkStatus();
}

Status TokenVerifier::Refresh(TimePoint now) {
  if (!failed_.ok() && now - failed_at_ < kAfterFailure) return failed_;
  const Status fetched = FetchKeys(now);
  failed_ = fetched.ok() ? fetched
                         : Unavailable("the issuer's keys cannot be fetched: " + fetched.message());
  failed_at_ = now;
  return failed_;
}

Result<IssuerMetadata> TokenVerifier::Metadata(TimePoint now) {
  if (!metadata_ || now - metadata_at_ >= kMetadataLasts) MUSTER_RETURN_IF_ERROR(Refresh(now));
  return *metadata_;
}

Result<IdClaims> TokenVerifier::Verify(std::string_view token, const ExpectedToken& expected,
                                       TimePoint now) {
  if (!keys_ || now - keys_at_ >= kKeysLast) MUSTER_RETURN_IF_ERROR(Refresh(now));
  Result<IdClaims> claims = VerifyIdToken(token, *keys_, expected);
  const bool may_ask_again =
      now - keys_at_ >= kBetweenUnknown && (!unknown_at_ || now - *unknown_at_ >= kBetweenUnknown);
  if (claims.status().code() == StatusCode::kNotFound && may_ask_again) {
    unknown_at_ = now;
    MUSTER_RETURN_IF_ERROR(Refresh(now));
    claims = VerifyIdToken(token, *keys_, expected);
  }
  if (claims.status().code() == StatusCode::kNotFound)
    return Unauthenticated(claims.status().message());
  return claims;
}

}  // namespace muster
