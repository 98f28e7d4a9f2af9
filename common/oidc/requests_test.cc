#include "common/oidc/requests.h"

#include <gmock/gmock.h>

namespace muster {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kIssuer[] = "https://issuer.example";
const CodeLogin kLogin{.client_id = "muster",
                       .redirect_uri = "http://127.0.0.1:4711/callback",
                       .state = "xyz",
                       .nonce = "n",
                       .verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"};

Result<std::string> CodeOf(const std::string& query) {
  return CodeFromRequest("GET /callback?" + query + " HTTP/1.1", kLogin, kIssuer);
}

TEST(CodeFlow, AsksWithStateNonceAndTheChallengeOfRfc7636) {
  EXPECT_EQ(CodeChallenge(kLogin.verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
  const std::string url = AuthorizationUrl(
      {.authorization_endpoint = "https://issuer.example/auth", .scopes = {"offline_access"}},
      kLogin);
  for (const char* part : {"https://issuer.example/auth?response_type=code&", "&state=xyz&",
                           "&nonce=n&", "redirect_uri=http%3A%2F%2F127.0.0.1%3A4711%2Fcallback&",
                           "code_challenge_method=S256", "scope=openid%20offline_access&",
                           "code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw"})
    EXPECT_THAT(url, HasSubstr(part));
  EXPECT_THAT(url, Not(HasSubstr(kLogin.verifier)));
  EXPECT_THAT(AuthorizationUrl({.authorization_endpoint = "https://a/?tenant=1"}, kLogin),
              HasSubstr("?tenant=1&response_type=code&"));
  EXPECT_THAT(RedeemForm(kLogin, "c/1"), HasSubstr("code=c%2F1&"));
  EXPECT_THAT(RedeemForm(kLogin, "c"), HasSubstr("code_verifier=" + kLogin.verifier));
}

TEST(CodeFlow, TakesTheCodeOfTheAnswerToThisRequest) {
  EXPECT_EQ(CodeOf("code=a%2Bb&state=xyz").value(), "a+b");
  EXPECT_EQ(CodeOf("state=xyz&code=a&iss=https%3A%2F%2Fissuer.example").value(), "a");
  const auto code_of = [](const std::string& query) { return CodeOf(query).status().code(); };
  EXPECT_EQ(code_of("code=a&state=other"), StatusCode::kUnauthenticated);
  EXPECT_EQ(code_of("code=a"), StatusCode::kUnauthenticated);
  EXPECT_EQ(code_of("state=xyz"), StatusCode::kUnauthenticated);
  EXPECT_EQ(code_of("code=a&code=b&state=xyz"), StatusCode::kUnauthenticated);
  EXPECT_EQ(code_of("code=a&state=xyz&iss=https%3A%2F%2Fevil"), StatusCode::kUnauthenticated);
  EXPECT_EQ(code_of("error=access_denied&state=other"), StatusCode::kUnauthenticated);
  const auto denied = CodeOf("error=access_denied&error_description=not%0Atoday&state=xyz");
  EXPECT_EQ(denied.status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(denied.status().message(), "access_denied: not?today");
}

TEST(CodeFlow, OtherRequestsOfABrowserAreNoAnswer) {
  for (const char* line : {"GET /favicon.ico HTTP/1.1", "POST /callback?code=a&state=xyz HTTP/1.1",
                           "GET /callback?code=a&state=xyz", "", "GET /callback HTTP/1.1"})
    EXPECT_EQ(CodeFromRequest(line, kLogin, kIssuer).status().code(), StatusCode::kNotFound)
        << line;
}

TEST(DeviceFlow, HasACodeAndPauses) {
  const auto login = ParseDeviceLogin(
      {200, R"({"device_code": "d", "user_code": "AB\u001b-CD", "verification_uri": "https://a",
                "expires_in": 1e9, "interval": 0})"});
  ASSERT_TRUE(login.ok()) << login.status().ToString();
  EXPECT_EQ(login->user_code, "AB?-CD") << "a terminal must not act on it";
  EXPECT_EQ(login->expires, 1h);
  EXPECT_EQ(login->interval, 1s);
  EXPECT_FALSE(ParseDeviceLogin({200, R"({"device_code": "d"})"}).ok());
  EXPECT_THAT(ParseDeviceLogin({400, R"({"error": "invalid_client"})"}).status().message(),
              HasSubstr("invalid_client"));
}

TEST(TokenAnswers, SayWhatAPollGoesBy) {
  const auto state = [](long code, const std::string& body) {
    return ParseTokenAnswer({code, body})->state;
  };
  EXPECT_EQ(state(400, R"({"error": "authorization_pending"})"), TokenState::kPending);
  EXPECT_EQ(state(400, R"({"error": "slow_down"})"), TokenState::kSlowDown);
  EXPECT_EQ(state(400, R"({"error": "expired_token"})"), TokenState::kRefused);
  EXPECT_EQ(state(401, R"({"error": "invalid_client"})"), TokenState::kRefused);
  const auto granted = ParseTokenAnswer({200, R"({"id_token": "i", "refresh_token": "r"})"});
  EXPECT_EQ(granted->state, TokenState::kGranted);
  EXPECT_EQ(granted->tokens.id_token, "i");
  EXPECT_EQ(granted->tokens.refresh_token, "r");
  for (const IssuerAnswer& passing :
       {IssuerAnswer{503, R"({"error": "temporarily_unavailable"})"}, IssuerAnswer{429, "{}"},
        IssuerAnswer{200, "<html>"}, IssuerAnswer{302, ""}})
    EXPECT_EQ(ParseTokenAnswer(passing).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace muster
