#include "common/oidc/issuer.h"

#include <gmock/gmock.h>

#include <map>

#include "common/security/testing/signed_tokens.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kIssuer[] = "https://issuer.example/realm";

json Discovery() {
  return {{"issuer", kIssuer},
          {"authorization_endpoint", "https://issuer.example/auth"},
          {"token_endpoint", "https://issuer.example/token"},
          {"jwks_uri", "https://issuer.example/keys"},
          {"scopes_supported", {"openid", "offline_access"}}};
}

TEST(IssuerUrl, IsOfHttpsAndHasNothingButAPath) {
  for (const char* good : {"https://issuer.example", "https://127.0.0.1:8443/a/b"})
    EXPECT_TRUE(CheckIssuerUrl(good).ok()) << good;
  for (const char* bad : {"", "http://issuer.example", "https://", "https:///a", "https://a?b",
                          "https://a#b", "https://user@a", "https://a b", "https://a\\b"})
    EXPECT_FALSE(CheckIssuerUrl(bad).ok()) << bad;
  EXPECT_EQ(DiscoveryUrl("https://a/b/"), "https://a/b/.well-known/openid-configuration");
  EXPECT_EQ(DiscoveryUrl("https://a/b"), "https://a/b/.well-known/openid-configuration");
}

TEST(Discovery, NamesEndpointsOfHttps) {
  const auto metadata = ParseDiscovery(kIssuer, Discovery().dump());
  ASSERT_TRUE(metadata.ok()) << metadata.status().ToString();
  EXPECT_EQ(metadata->token_endpoint, "https://issuer.example/token");
  EXPECT_EQ(metadata->device_authorization_endpoint, "");
  EXPECT_THAT(metadata->scopes, ::testing::ElementsAre("openid", "offline_access"));
  const auto refusal = [](const char* name, const json& value) {
    json document = Discovery();
    document[name] = value;
    return ParseDiscovery(kIssuer, document.dump()).status().message();
  };
  EXPECT_THAT(refusal("issuer", "https://evil.example"), HasSubstr("document of 'https://evil"));
  EXPECT_THAT(refusal("jwks_uri", "http://issuer.example/keys"), HasSubstr("'jwks_uri'"));
  EXPECT_THAT(refusal("jwks_uri", "file:///etc/passwd"), HasSubstr("'jwks_uri'"));
  EXPECT_THAT(refusal("token_endpoint", "https://a\r\nb"), HasSubstr("'token_endpoint'"));
  EXPECT_THAT(refusal("device_authorization_endpoint", 7), HasSubstr("'device_auth"));
  EXPECT_FALSE(ParseDiscovery(kIssuer, "[]").ok());
}

class TokenVerifierTest : public ::testing::Test {
 protected:
  TokenVerifierTest() {
    documents_[DiscoveryUrl(kIssuer)] = Discovery().dump();
    Publish({old_});
  }
  void Publish(const std::vector<SigningKeyForTest>& keys) {
    documents_["https://issuer.example/keys"] = KeySetOf(keys);
  }
  Status Verify(const SigningKeyForTest& key) {
    const std::int64_t now_s = 1'800'000'000;
    const std::string token = key.Sign(
        {{"iss", kIssuer}, {"aud", "muster"}, {"sub", "1"}, {"iat", now_s}, {"exp", now_s + 60}});
    return verifier_
        .Verify(token,
                {.issuer = kIssuer, .client_id = "muster", .nonce = "", .now_ms = now_s * 1000},
                now_)
        .status();
  }
  int Fetched(const std::string& url) { return fetches_[url]; }
  int KeyFetches() { return Fetched("https://issuer.example/keys"); }

  SigningKeyForTest old_{"old", SigningKeyForTest::Ec{}};
  SigningKeyForTest fresh_{"fresh", SigningKeyForTest::Ec{}};
  std::map<std::string, std::string> documents_;
  std::map<std::string, int> fetches_;
  bool down_ = false;
  TimePoint now_ = TimePoint(1h);
  TokenVerifier verifier_{kIssuer, [this](const std::string& url) -> Result<std::string> {
                            ++fetches_[url];
                            if (down_) return Unavailable(url + ": refused");
                            return documents_.at(url);
                          }};
};

TEST_F(TokenVerifierTest, KeepsKeysForTenMinutes) {
  EXPECT_TRUE(Verify(old_).ok());
  now_ += 10min - 1s;
  EXPECT_TRUE(Verify(old_).ok());
  EXPECT_EQ(KeyFetches(), 1);
  now_ += 1s;
  EXPECT_TRUE(Verify(old_).ok());
  EXPECT_EQ(KeyFetches(), 2);
  EXPECT_EQ(Fetched(DiscoveryUrl(kIssuer)), 1);
}

TEST_F(TokenVerifierTest, AKeyThatIsUnknownHasThemFetchedOnceAMinute) {
  EXPECT_TRUE(Verify(old_).ok());
  Publish({fresh_});
  EXPECT_EQ(Verify(fresh_).code(), StatusCode::kUnauthenticated) << "the keys are of this minute";
  EXPECT_EQ(KeyFetches(), 1);
  now_ += 1min;
  EXPECT_TRUE(Verify(fresh_).ok());
  EXPECT_EQ(Verify(old_).code(), StatusCode::kUnauthenticated) << "it was withdrawn";
  EXPECT_EQ(KeyFetches(), 2);
}

TEST_F(TokenVerifierTest, UnknownKeysAskAnIssuerThatIsDownOnceAMinuteToo) {
  EXPECT_TRUE(Verify(old_).ok());
  now_ += 1min;
  down_ = true;
  EXPECT_EQ(Verify(fresh_).code(), StatusCode::kUnavailable);
  now_ += 30s;
  EXPECT_EQ(Verify(fresh_).code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(KeyFetches(), 2);
  EXPECT_TRUE(Verify(old_).ok()) << "known keys serve on";
}

TEST_F(TokenVerifierTest, AfterAFailureItPausesAndThenTriesAgain) {
  down_ = true;
  EXPECT_THAT(Verify(old_).message(), HasSubstr("cannot be fetched"));
  EXPECT_EQ(Verify(old_).code(), StatusCode::kUnavailable);
  EXPECT_EQ(Fetched(DiscoveryUrl(kIssuer)), 1);
  down_ = false;
  now_ += 5s;
  EXPECT_TRUE(Verify(old_).ok());
}

TEST_F(TokenVerifierTest, DocumentsThatAreWrongAreAnIssuerThatIsDown) {
  documents_["https://issuer.example/keys"] = "<html>";
  EXPECT_EQ(Verify(old_).code(), StatusCode::kUnavailable);
  json discovery = Discovery();
  discovery["issuer"] = "https://evil.example";
  documents_[DiscoveryUrl(kIssuer)] = discovery.dump();
  now_ += 2h;
  EXPECT_THAT(Verify(old_).message(), HasSubstr("document of 'https://evil.example'"));
}

}  // namespace
}  // namespace muster
