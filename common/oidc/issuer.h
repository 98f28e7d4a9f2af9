// An issuer of ID tokens (OpenID provider) as its documents describe it, and TokenVerifier, which
// keeps its keys.
//
// Documents are fetched by HTTPS alone, without redirects, of 1 MiB at most, within 10 s.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/http/http_client.h"
#include "common/oidc/id_token.h"
#include "common/oidc/jwk_set.h"

namespace muster {

// OK for https://HOST[:PORT][/PATH], as an issuer calls itself. Pure.
Status CheckIssuerUrl(std::string_view url);

// What the discovery document says (OpenID Connect Discovery 1.0; RFC 8414). All are URLs of https.
struct IssuerMetadata {
  std::string issuer;
  std::string authorization_endpoint;
  std::string token_endpoint;
  std::string jwks_uri;
  std::string device_authorization_endpoint;  // empty: there is no device flow
  std::string revocation_endpoint;            // empty: there is none
  std::vector<std::string> scopes;
};
// kInvalidArgument also for the document of another issuer. Pure.
Result<IssuerMetadata> ParseDiscovery(const std::string& issuer, std::string_view json);
std::string DiscoveryUrl(const std::string& issuer);

// The body of one exchange: a GET, or a POST of a form. Any status code is an answer, as issuers
// say by 400 what is wrong.
struct IssuerAnswer {
  long code = 0;
  std::string body;
};
struct IssuerExchange {
  std::string ca_pem = {};                       // HttpClientRequest's
  const std::atomic<bool>* cancelled = nullptr;  // HttpClientRequest's
};
Result<IssuerAnswer> AskIssuer(HttpClient& client, const IssuerExchange& exchange,
                               const std::string& url,
                               const std::optional<std::string>& form = std::nullopt);
// A document: the body of an answer of 200. kUnavailable for others.
Result<std::string> FetchDocument(HttpClient& client, const IssuerExchange& exchange,
                                  const std::string& url);

// Verifies tokens of one issuer with its keys, which it fetches as they are needed: anew after ten
// minutes, and for a key that it does not know once a minute at most. After a failed fetch it
// answers kUnavailable for five seconds without another try.
//
// One thread at a time; Verify blocks for the fetches.
class TokenVerifier {
 public:
  static constexpr Duration kKeysLast = std::chrono::minutes(10);
  static constexpr Duration kMetadataLasts = std::chrono::hours(1);
  static constexpr Duration kBetweenUnknown = std::chrono::minutes(1);
  static constexpr Duration kAfterFailure = std::chrono::seconds(5);

  using Fetch = std::function<Result<std::string>(const std::string& url)>;
  TokenVerifier(std::string issuer, Fetch fetch);

  // Kept for an hour; kUnavailable as Verify.
  Result<IssuerMetadata> Metadata(TimePoint now);
  // As VerifyIdToken, but kNotFound does not come out; kUnavailable: the issuer's keys cannot be
  // had.
  Result<IdClaims> Verify(std::string_view token, const ExpectedToken& expected, TimePoint now);

 private:
  Status Refresh(TimePoint now);
  Status FetchKeys(TimePoint now);

  const std::string issuer_;
  const Fetch fetch_;
  std::optional<IssuerMetadata> metadata_;
  TimePoint metadata_at_;
  std::optional<JwkSet> keys_;
  TimePoint keys_at_;
  std::optional<TimePoint> unknown_at_;  // when an unknown key last had them fetched
  Status failed_;
  TimePoint failed_at_;
};

}  // namespace muster
