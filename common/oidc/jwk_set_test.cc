#include "common/oidc/jwk_set.h"

#include <gmock/gmock.h>

#include "common/security/testing/signed_tokens.h"

namespace muster {
namespace {

using nlohmann::json;
using Kind = PublicKey::Kind;

JwkSet SetOf(const json& keys) {
  json document;
  document["keys"] = keys;
  const auto set = JwkSet::Parse(document.dump());
  EXPECT_TRUE(set.ok()) << set.status().ToString();
  return set.ok() ? *set : JwkSet();
}

TEST(JwkSetTest, FindsAKeyByNameAndKind) {
  const SigningKeyForTest rsa("a");
  const SigningKeyForTest ec("a", SigningKeyForTest::Ec{});
  const JwkSet set = SetOf(json::array({rsa.Jwk(), ec.Jwk()}));
  ASSERT_EQ(set.size(), 2u);
  EXPECT_EQ(set.Find("a", Kind::kRsa)->kind(), Kind::kRsa);
  EXPECT_EQ(set.Find("a", Kind::kP256)->kind(), Kind::kP256);
  EXPECT_EQ(set.Find("b", Kind::kRsa), nullptr);
  EXPECT_NE(set.Find("", Kind::kRsa), nullptr) << "the only one of its kind needs no name";
}

TEST(JwkSetTest, WithoutANameOfSeveralKeysNoneIsMeant) {
  const SigningKeyForTest one("a", SigningKeyForTest::Ec{});
  const SigningKeyForTest other("b", SigningKeyForTest::Ec{});
  EXPECT_EQ(SetOf(json::array({one.Jwk(), other.Jwk()})).Find("", Kind::kP256), nullptr);
}

TEST(JwkSetTest, LeavesOutWhatIsNotForThem) {
  const json rsa = SigningKeyForTest("a").Jwk();
  const json ec = SigningKeyForTest("b", SigningKeyForTest::Ec{}).Jwk();
  const auto with = [](json key, const char* name, const json& value) {
    key[name] = value;
    return key;
  };
  const auto without = [](json key, const char* name) {
    key.erase(name);
    return key;
  };
  const json rejected[] = {SigningKeyForTest("short", 1024).Jwk(),
                           with(rsa, "use", "enc"),
                           with(rsa, "alg", "RS512"),
                           with(rsa, "alg", 7),
                           with(rsa, "key_ops", json::array({"sign"})),
                           with(rsa, "e", "AQ"),
                           with(rsa, "e", "Ag"),
                           with(rsa, "n", "!"),
                           with(rsa, "kty", "oct"),
                           with(rsa, "kid", std::string(257, 'k')),
                           without(rsa, "n"),
                           with(ec, "crv", "P-384"),
                           with(ec, "x", ec["y"]),
                           with(ec, "y", "AA"),
                           without(ec, "y"),
                           json("text"),
                           json::object()};
  for (const json& key : rejected) EXPECT_EQ(SetOf(json::array({key})).size(), 0u) << key.dump();
  const json taken =
      json::array({with(rsa, "key_ops", json::array({"verify"})), with(rsa, "alg", "RS256")});
  EXPECT_EQ(SetOf(taken).size(), 2u);
}

TEST(JwkSetTest, RefusesWhatIsNoSet) {
  for (const char* text : {"", "[]", "{}", R"({"keys": {}})", R"({"keys": )", "\xff"})
    EXPECT_FALSE(JwkSet::Parse(text).ok()) << text;
  const json many = json::array_t(JwkSet::kMaxKeys + 1, json::object());
  EXPECT_FALSE(JwkSet::Parse(json({{"keys", many}}).dump()).ok());
  EXPECT_FALSE(JwkSet::Parse(std::string(1 << 20, '[')).ok()) << "nesting costs no stack";
}

}  // namespace
}  // namespace muster
