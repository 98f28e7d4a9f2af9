#include "coordinator/service/taken_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/security/testing/signed_tokens.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kNowMs = 1'800'000'000'000;
constexpr std::int64_t kMinute = 60'000;
constexpr char kIssuer[] = "https://issuer.example";

nlohmann::json ClaimsAt(std::int64_t issued_ms) {
  return {{"iss", kIssuer},
          {"sub", "ada"},
          {"aud", "muster"},
          {"iat", issued_ms / 1000},
          {"exp", issued_ms / 1000 + 300}};
}

class TakenTokensTest : public testing::Test {
 protected:
  Result<IdClaims> Verify(const std::string& token, std::int64_t now_ms = kNowMs) const {
    return VerifyIdToken(
        token, *JwkSet::Parse(KeySetOf({key_})),
        {.issuer = kIssuer, .client_id = "muster", .nonce = "n-0S6", .now_ms = now_ms});
  }
  Status LogIn(const std::string& token, const std::string& key, std::int64_t now_ms = kNowMs) {
    const Result<IdClaims> claims = Verify(token, now_ms);
    return claims.ok() ? taken_.Take(token, *claims, key, now_ms) : claims.status();
  }

  const SigningKeyForTest key_{"ec-1", SigningKeyForTest::Ec{}};
  TakenTokens taken_{kNowMs - kMinute};
};

TEST_F(TakenTokensTest, ATokenIsForOneKeyWhicheverOfItsSignaturesItHas) {
  const std::string token = key_.Sign(ClaimsAt(kNowMs));
  const std::string other = SigningKeyForTest::WithOtherSignature(token);
  ASSERT_NE(other, token);
  ASSERT_TRUE(Verify(other).ok()) << "both are the issuer's";
  EXPECT_EQ(LogIn(token, "first"), OkStatus());
  EXPECT_EQ(LogIn(token, "first"), OkStatus()) << "the answer was lost";
  for (const std::string& stolen : {token, other}) {
    const Status refused = LogIn(stolen, "second");
    EXPECT_EQ(refused.code(), StatusCode::kUnauthenticated);
    EXPECT_THAT(refused.message(), HasSubstr("another login has used it"));
  }
}

TEST_F(TakenTokensTest, WhatANonceTiesToItsKeyIsNotKept) {
  nlohmann::json claims = ClaimsAt(kNowMs - 8 * kMinute);
  claims["nonce"] = "n-0S6";
  claims["exp"] = kNowMs / 1000 + 300;
  const std::string token = key_.Sign(claims);
  EXPECT_EQ(LogIn(token, "first"), OkStatus());
  EXPECT_EQ(LogIn(token, "second"), OkStatus());
}

TEST_F(TakenTokensTest, WhatAnEarlierCoordinatorMayHaveTakenIsRefused) {
  nlohmann::json claims = ClaimsAt(kNowMs - 7 * kMinute);
  claims["exp"] = kNowMs / 1000 + 300;
  const Status refused = LogIn(key_.Sign(claims), "first");
  EXPECT_EQ(refused.code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(refused.message(), HasSubstr("before this coordinator began"));
  EXPECT_THAT(refused.message(), HasSubstr("next: muster login"));
  // The issuer's clock may be behind.
  EXPECT_EQ(LogIn(key_.Sign(ClaimsAt(kNowMs - 5 * kMinute)), "first"), OkStatus());
}

}  // namespace
}  // namespace muster
