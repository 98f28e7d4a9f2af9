// What comes from an issuer of OpenID Connect, or claims to. The first byte says what the rest is:
//   't' a token as it is       'c' claims, which this target signs for the issuer
//   'h' a head of a token, which this target signs with good claims behind it
//   'k' a key set, 'd' a discovery document, 'v' the answer for a device, 'a' of a token endpoint
//   'q' what a browser asks for at the redirect
#include <memory>
#include <string>

#include "common/oidc/id_token.h"
#include "common/oidc/issuer.h"
#include "common/oidc/requests.h"
#include "common/security/testing/signed_tokens.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace muster;

constexpr char kIssuer[] = "https://issuer.example";
constexpr char kHead[] = R"({"alg":"ES256","kid":"ec-1","typ":"JWT"})";
constexpr char kClaims[] =
    R"({"iss":"https://issuer.example","aud":"muster","sub":"1","iat":1800000000,)"
    R"("exp":1800000300,"nonce":"n-0S6"})";

const SigningKeyForTest& Key() {
  static const SigningKeyForTest key("ec-1", SigningKeyForTest::Ec{});
  return key;
}

void Verify(const std::string& token) {
  static const JwkSet keys = *JwkSet::Parse(KeySetOf({Key()}));
  const Result<IdClaims> claims = VerifyIdToken(
      token, keys,
      {.issuer = kIssuer, .client_id = "muster", .nonce = "n-0S6", .now_ms = 1'800'000'000'000});
  if (claims.ok()) {
    fuzz::Require(!claims->subject.empty() && claims->subject.size() <= kMaxSubjectBytes,
                  "a subject is neither empty nor long");
    fuzz::Require(claims->expires_ms > 1'799'999'000'000, "a token that has expired is refused");
  } else {
    const StatusCode code = claims.status().code();
    fuzz::Require(code == StatusCode::kUnauthenticated || code == StatusCode::kNotFound,
                  claims.status().ToString());
  }
}

void Try(char kind, const std::string& text) {
  switch (kind) {
    case 't': return Verify(text);
    case 'c': return Verify(Key().SignText(kHead, text));
    case 'h': return Verify(Key().SignText(text, kClaims));
    case 'k': {
      const Result<JwkSet> keys = JwkSet::Parse(text);
      if (keys.ok()) fuzz::Require(keys->size() <= JwkSet::kMaxKeys, "a set has its bound");
      return;
    }
    case 'd': {
      const Result<IssuerMetadata> issuer = ParseDiscovery(kIssuer, text);
      if (!issuer.ok()) return;
      for (const std::string& url :
           {issuer->authorization_endpoint, issuer->token_endpoint, issuer->jwks_uri})
        fuzz::Require(url.starts_with("https://"), "an issuer's addresses are of https");
      ScopesFor(*issuer);
      return;
    }
    case 'v': return (void)ParseDeviceLogin({.code = 200, .body = text});
    case 'a':
      (void)ParseTokenAnswer({.code = 200, .body = text});
      return (void)ParseTokenAnswer({.code = 400, .body = text});
    case 'q': {
      const auto code = CodeFromRequest(text, {.client_id = "muster", .state = "s"}, kIssuer);
      if (code.ok()) fuzz::Require(!code->empty(), "a code is not empty");
      return;
    }
    default: return (void)CheckIssuerUrl(text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0) Try(static_cast<char>(data[0]), std::string(fuzz::TextOf(data + 1, size - 1)));
  return 0;
}
