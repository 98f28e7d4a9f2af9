#include "common/oidc/id_token.h"

#include <gmock/gmock.h>

#include <functional>

#include "common/security/testing/signed_tokens.h"

namespace muster {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr std::int64_t kNow = 1'800'000'000;  // seconds
constexpr char kIssuer[] = "https://issuer.example";

json Claims() {
  return {{"iss", kIssuer}, {"aud", "muster"},   {"sub", "248289761001"},
          {"iat", kNow},    {"exp", kNow + 300}, {"nonce", "n-0S6"}};
}

class IdTokenTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    rsa_ = std::make_unique<SigningKeyForTest>("rsa-1");
    ec_ = std::make_unique<SigningKeyForTest>("ec-1", SigningKeyForTest::Ec{});
    stranger_ = std::make_unique<SigningKeyForTest>("rsa-1");
    keys_ = *JwkSet::Parse(KeySetOf({*rsa_, *ec_}));
  }
  static void TearDownTestSuite() {
    rsa_.reset();
    ec_.reset();
    stranger_.reset();
  }

  static Result<IdClaims> Verify(const std::string& token, std::int64_t now = kNow) {
    return VerifyIdToken(
        token, keys_,
        {.issuer = kIssuer, .client_id = "muster", .nonce = "n-0S6", .now_ms = now * 1000});
  }
  // Why the token is refused with this in its claims; "" : it is not.
  static std::string Refusal(const std::function<void(json&)>& change) {
    json claims = Claims();
    change(claims);
    const auto verified = Verify(rsa_->Sign(claims));
    EXPECT_TRUE(verified.ok() || verified.status().code() == StatusCode::kUnauthenticated);
    return verified.status().message();
  }
  static std::string With(const char* name, const json& value) {
    return Refusal([&](json& claims) { claims[name] = value; });
  }
  static std::string Without(const char* name) {
    return Refusal([&](json& claims) { claims.erase(name); });
  }

  static std::unique_ptr<SigningKeyForTest> rsa_;
  static std::unique_ptr<SigningKeyForTest> ec_;
  static std::unique_ptr<SigningKeyForTest> stranger_;  // another key of the first one's name
  static JwkSet keys_;
};
std::unique_ptr<SigningKeyForTest> IdTokenTest::rsa_;
std::unique_ptr<SigningKeyForTest> IdTokenTest::ec_;
std::unique_ptr<SigningKeyForTest> IdTokenTest::stranger_;
JwkSet IdTokenTest::keys_;

TEST_F(IdTokenTest, TakesTokensOfBothAlgorithms) {
  for (const SigningKeyForTest* key : {rsa_.get(), ec_.get()}) {
    const auto claims = Verify(key->Sign(Claims()));
    ASSERT_TRUE(claims.ok()) << claims.status().ToString();
    EXPECT_EQ(claims->subject, "248289761001");
    EXPECT_TRUE(claims->has_nonce);
    EXPECT_EQ(claims->issued_ms, kNow * 1000);
    EXPECT_EQ(claims->expires_ms, (kNow + 300) * 1000);
  }
  EXPECT_TRUE(Verify(ec_->Sign({{"alg", "ES256"}}, Claims())).ok()) << "no kid, one key";
}

TEST_F(IdTokenTest, RefusesWhatTheIssuerHasNotSigned) {
  const json header = {{"alg", "none"}, {"typ", "JWT"}};
  EXPECT_THAT(Verify(SigningKeyForTest::Unsigned(header, Claims()) + ".").status().message(),
              HasSubstr("signed by 'none'"));
  for (const char* none : {"NONE", "nOnE", ""})
    EXPECT_FALSE(Verify(SigningKeyForTest::Unsigned({{"alg", none}}, Claims()) + ".").ok());
  const json hmac = {{"alg", "HS256"}, {"kid", "rsa-1"}};
  EXPECT_THAT(
      Verify(SigningKeyForTest::HmacSigned(rsa_->PublicPem(), hmac, Claims())).status().message(),
      HasSubstr("signed by 'HS256'"));
  EXPECT_THAT(Verify(stranger_->Sign(Claims())).status().message(), HasSubstr("signature"));
  std::string token = rsa_->Sign(Claims());
  const std::size_t dot = token.find('.');
  token[dot + 10] ^= 1;
  EXPECT_FALSE(Verify(token).ok());
  EXPECT_FALSE(Verify(rsa_->Sign(Claims()).substr(0, token.rfind('.') + 1)).ok());
}

TEST_F(IdTokenTest, AKeyServesItsOwnAlgorithmAlone) {
  for (const char* algorithm : {"ES256", "RS384", "PS256", "ES512"}) {
    const auto verified = Verify(rsa_->Sign({{"alg", algorithm}, {"kid", "rsa-1"}}, Claims()));
    EXPECT_FALSE(verified.ok()) << algorithm;
  }
  EXPECT_FALSE(Verify(ec_->Sign({{"alg", "RS256"}, {"kid", "ec-1"}}, Claims())).ok());
}

TEST_F(IdTokenTest, SaysThatAKeyIsUnknown) {
  const auto verified = Verify(rsa_->Sign({{"alg", "RS256"}, {"kid", "rsa-2"}}, Claims()));
  EXPECT_EQ(verified.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(verified.status().message(), HasSubstr("no RS256 key 'rsa-2'"));
}

TEST_F(IdTokenTest, TakesNoKeyOutOfTheToken) {
  const json header = {{"alg", "RS256"},
                       {"kid", "mine"},
                       {"jwk", stranger_->Jwk()},
                       {"jku", "https://evil.example/keys"}};
  EXPECT_EQ(Verify(stranger_->Sign(header, Claims())).status().code(), StatusCode::kNotFound);
}

TEST_F(IdTokenTest, RefusesTokensOfOtherKinds) {
  EXPECT_THAT(
      Verify(rsa_->Sign({{"alg", "RS256"}, {"typ", "at+jwt"}}, Claims())).status().message(),
      HasSubstr("'at+jwt'"));
  EXPECT_THAT(Verify(rsa_->Sign({{"alg", "RS256"}, {"crit", {"x"}}}, Claims())).status().message(),
              HasSubstr("extensions"));
}

TEST_F(IdTokenTest, IsForThisClientOfThisIssuer) {
  EXPECT_THAT(With("iss", "https://evil.example"), HasSubstr("of the issuer 'https://evil"));
  EXPECT_THAT(With("iss", std::string(kIssuer) + "/"), HasSubstr("of the issuer"));
  EXPECT_THAT(With("iss", 7), HasSubstr("'iss' is no text"));
  EXPECT_THAT(Without("iss"), HasSubstr("of the issuer ''"));
  EXPECT_THAT(With("aud", "other"), HasSubstr("for client 'other', not for 'muster'"));
  EXPECT_THAT(With("aud", json::array({"a", "b"})), HasSubstr("for client 'a'"));
  EXPECT_THAT(With("aud", json::array()), HasSubstr("names no client"));
  EXPECT_THAT(With("aud", json::array({"muster", 7})), HasSubstr("names no client"));
  EXPECT_THAT(Without("aud"), HasSubstr("names no client"));
  EXPECT_EQ(With("aud", json::array({"muster"})), "");
  EXPECT_THAT(With("aud", json::array({"muster", "b"})), HasSubstr("azp"));
  EXPECT_THAT(With("azp", "b"), HasSubstr("client 'b' asked for it (azp), not 'muster'"));
  EXPECT_EQ(With("azp", "muster"), "");
  EXPECT_EQ(Refusal([](json& claims) {
              claims["aud"] = {"b", "muster"};
              claims["azp"] = "muster";
            }),
            "");
}

TEST_F(IdTokenTest, IsForThisLogin) {
  EXPECT_THAT(With("nonce", "another"), HasSubstr("another login (nonce)"));
  EXPECT_THAT(With("nonce", 7), HasSubstr("'nonce' is no text"));
  const auto without = [] {
    json claims = Claims();
    claims.erase("nonce");
    return Verify(rsa_->Sign(claims));
  }();
  ASSERT_TRUE(without.ok()) << "those of the device flow have none";
  EXPECT_FALSE(without->has_nonce);
}

TEST_F(IdTokenTest, ClocksMayDifferByFiveMinutes) {
  const std::string token = rsa_->Sign(Claims());  // from kNow to kNow + 300
  EXPECT_TRUE(Verify(token, kNow - 300).ok());
  EXPECT_THAT(Verify(token, kNow - 301).status().message(), HasSubstr("later than the clock here"));
  EXPECT_TRUE(Verify(token, kNow + 300 + 299).ok());
  EXPECT_THAT(Verify(token, kNow + 300 + 300).status().message(), HasSubstr("expired at"));
  EXPECT_EQ(With("nbf", kNow + 300), "");
  EXPECT_THAT(With("nbf", kNow + 301), HasSubstr("not valid before"));
}

TEST_F(IdTokenTest, ATokenThatLastsForHoursIsForALoginNow) {
  json claims = Claims();
  claims["exp"] = kNow + 36'000;
  const std::string token = rsa_->Sign(claims);
  EXPECT_TRUE(Verify(token, kNow + 899).ok());
  EXPECT_THAT(Verify(token, kNow + 900).status().message(), HasSubstr("too long ago"));
}

TEST_F(IdTokenTest, TimesMustBeTimes) {
  EXPECT_THAT(Without("exp"), HasSubstr("exp"));
  EXPECT_THAT(Without("iat"), HasSubstr("iat"));
  EXPECT_THAT(With("exp", "later"), HasSubstr("'exp' is no time"));
  EXPECT_THAT(With("exp", 1e300), HasSubstr("'exp' is no time"));
  EXPECT_THAT(With("iat", -1), HasSubstr("'iat' is no time"));
  EXPECT_THAT(With("nbf", json::array()), HasSubstr("'nbf' is no time"));
  EXPECT_EQ(With("iat", kNow + 0.5), "");
}

TEST_F(IdTokenTest, TheSubjectIsAShortLine) {
  EXPECT_THAT(Without("sub"), HasSubstr("sub"));
  for (const json& bad : {json(""), json(std::string(256, 's')), json("a\nb"), json(7)})
    EXPECT_NE(With("sub", bad), "") << bad.dump();
  EXPECT_EQ(With("sub", std::string(255, 's')), "");
}

TEST_F(IdTokenTest, RefusesWhatIsNoToken) {
  const std::string good = rsa_->Sign(Claims());
  for (const std::string& bad :
       {std::string(), std::string("a.b"), std::string("a.b.c"), good + ".x", "." + good,
        good + "=", std::string(kMaxTokenBytes + 1, 'a'), std::string("W10.W10.")})
    EXPECT_EQ(Verify(bad).status().code(), StatusCode::kUnauthenticated) << bad.substr(0, 40);
}

}  // namespace
}  // namespace muster
