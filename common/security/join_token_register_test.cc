#include "common/security/join_token_register.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>
#include <vector>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

constexpr std::int64_t kNow = 1'800'000'000'000;
constexpr std::int64_t kHour = 3'600'000;

class JoinTokenRegisterTest : public ::testing::Test {
 protected:
  JoinToken Make(const std::string& node, std::int64_t now_ms = kNow) {
    return *book_.Make(node, kJoinTokenLifetime, "authority", now_ms);
  }
  // Comes with `key`; a node that is let in gets a certificate of that name.
  Result<Redemption> Claim(const JoinToken& token, const std::string& node,
                           std::int64_t now_ms = kNow, const std::string& key = "key") {
    const JoinClaim claim{token.id, token.secret, node, key};
    return book_.Redeem({&claim, 1}, now_ms,
                        [&](std::size_t, const Redemption& redemption) -> Result<std::string> {
                          if (!redemption.certificate_pem.empty())
                            return redemption.certificate_pem;
                          return "certificate " + std::to_string(++certificates_);
                        })[0];
  }
  StatusCode Redeem(const JoinToken& token, const std::string& node, std::int64_t now_ms = kNow,
                    const std::string& key = "key") {
    return Claim(token, node, now_ms, key).status().code();
  }

  const TempDirForTest temp_;
  const std::string path_ = temp_ / "join-tokens.json";
  const JoinTokenRegister book_{path_, "lab"};
  int certificates_ = 0;
};

TEST_F(JoinTokenRegisterTest, LetsTheNodeInOnce) {
  const JoinToken token = Make("n7");
  EXPECT_EQ(token.expires_ms, kNow + kHour);
  const auto redeemed = Claim(token, "n7", kNow + 5);
  ASSERT_TRUE(redeemed.ok()) << redeemed.status().ToString();
  EXPECT_EQ(redeemed->identity, (Identity{Role::kNode, "n7", "lab"}));
  EXPECT_FALSE(redeemed->for_any_node);
  EXPECT_EQ(redeemed->made_ms, kNow);
  const auto again = Claim(token, "n7", kNow + 6, "another key");
  EXPECT_EQ(again.status().code(), StatusCode::kPermissionDenied);
  EXPECT_NE(again.status().message().find("was used by node n7"), std::string::npos)
      << again.status().message();
}

TEST_F(JoinTokenRegisterTest, LetsAnyNodeInByATokenForAnyNode) {
  JoinToken without_secret = Make("");
  without_secret.secret = "";
  const auto redeemed = Claim(without_secret, "n9");
  EXPECT_EQ(redeemed.status().code(), StatusCode::kUnauthenticated);
  const JoinToken token = Make("");
  const auto any = Claim(token, "n9");
  ASSERT_TRUE(any.ok());
  EXPECT_TRUE(any->for_any_node);
  EXPECT_EQ(any->identity.name, "n9");
}

TEST_F(JoinTokenRegisterTest, LetsNoOtherNodeInAndKeepsTheTokenForItsOwn) {
  const JoinToken token = Make("n7");
  EXPECT_EQ(Redeem(token, "n8"), StatusCode::kPermissionDenied);
  EXPECT_EQ(Redeem(token, "n7.x"), StatusCode::kPermissionDenied);
  EXPECT_EQ(Redeem(token, "n"), StatusCode::kPermissionDenied);
  EXPECT_EQ(Redeem(token, "../n7"), StatusCode::kInvalidArgument);
  EXPECT_EQ(Redeem(token, "n7"), StatusCode::kOk);
}

TEST_F(JoinTokenRegisterTest, AdmitsNoNodeOnceTheTokenHasExpired) {
  const JoinToken token = Make("n7");
  EXPECT_EQ(Redeem(token, "n7", kNow + kHour), StatusCode::kPermissionDenied);
  EXPECT_EQ(Redeem(token, "n7", kNow + kHour - 1), StatusCode::kOk);
}

TEST_F(JoinTokenRegisterTest, AnswersAlikeForUnknownTokensAndWrongSecrets) {
  const JoinToken token = Make("n7");
  for (std::size_t i = 0; i < token.secret.size(); ++i) {
    JoinToken guessed = token;
    guessed.secret[i] = static_cast<char>(guessed.secret[i] ^ 1);
    const auto wrong = Claim(guessed, "n7");
    JoinToken stranger = token;
    stranger.id = "0000000000000000";
    const auto unknown = Claim(stranger, "n7");
    EXPECT_EQ(wrong.status().code(), StatusCode::kUnauthenticated);
    EXPECT_EQ(wrong.status(), unknown.status());
  }
  EXPECT_EQ(Redeem(token, "n7"), StatusCode::kOk);
}

TEST_F(JoinTokenRegisterTest, AdmitsOneOfManyConcurrentNodes) {
  const JoinToken token = Make("");
  std::atomic<int> let_in = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      const JoinClaim claim{token.id, token.secret, "n" + std::to_string(i), "key"};
      const auto redeemed = JoinTokenRegister(path_, "lab")
                                .Redeem({&claim, 1}, kNow, [](std::size_t, const Redemption&) {
                                  return Result<std::string>("certificate");
                                });
      if (redeemed[0].ok()) ++let_in;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(let_in, 1);
  EXPECT_EQ(book_.List()->front().redeemed_ms, kNow);
}

TEST_F(JoinTokenRegisterTest, KeepsATokenThatTheCallerDoesNotAdmit) {
  const JoinToken token = Make("n7");
  const JoinClaim claim{token.id, token.secret, "n7", "key"};
  const auto refused = book_.Redeem(
      {&claim, 1}, kNow,
      [](std::size_t, const Redemption&) -> Result<std::string> { return Aborted("not now"); });
  EXPECT_EQ(refused[0].status(), Aborted("not now"));
  EXPECT_EQ(Redeem(token, "n7"), StatusCode::kOk);
}

TEST_F(JoinTokenRegisterTest, GivesTheSameCertificateAgainForTheSameKey) {
  const JoinToken token = Make("");
  EXPECT_EQ(Claim(token, "n7")->certificate_pem, "certificate 1");
  EXPECT_EQ(Claim(token, "n7", kNow + kHour - 1)->certificate_pem, "certificate 1");
  EXPECT_EQ(Redeem(token, "n7", kNow, "another key"), StatusCode::kPermissionDenied);
  EXPECT_EQ(Redeem(token, "n8"), StatusCode::kPermissionDenied);
  EXPECT_EQ(Redeem(token, "n7", kNow + kHour), StatusCode::kPermissionDenied);
  EXPECT_EQ(book_.List()->front().redeemed_ms, kNow);
}

TEST_F(JoinTokenRegisterTest, DecidesOfManyInTheirOrder) {
  const JoinToken first = Make("n1");
  const JoinToken any = Make("");
  const std::vector<JoinClaim> claims = {{first.id, first.secret, "n2", "a"},
                                         {first.id, first.secret, "n1", "b"},
                                         {first.id, first.secret, "n1", "c"},
                                         {any.id, any.secret, "n3", "d"}};
  const auto outcomes = book_.Redeem(
      claims, kNow, [&](std::size_t i, const Redemption&) { return claims[i].key + "'s"; });
  ASSERT_EQ(outcomes.size(), claims.size());
  EXPECT_EQ(outcomes[0].status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(outcomes[1]->certificate_pem, "b's");
  EXPECT_EQ(outcomes[2].status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(outcomes[3]->certificate_pem, "d's");
}

TEST_F(JoinTokenRegisterTest, ReadsBooksOfBefore) {
  const JoinToken token = Make("n7");
  ASSERT_EQ(Redeem(token, "n7"), StatusCode::kOk);
  auto book = nlohmann::json::parse(*ReadFile(path_));
  book["tokens"][0].erase("redeemed_key");
  book["tokens"][0].erase("certificate");
  ASSERT_TRUE(WriteFileAtomically(path_, book.dump(), 0600).ok());
  EXPECT_EQ(Redeem(token, "n7"), StatusCode::kPermissionDenied);
}

TEST_F(JoinTokenRegisterTest, KeepsNoSecretInItsFile) {
  const JoinToken token = Make("n7");
  const std::string content = *ReadFile(path_);
  EXPECT_EQ(content.find(token.secret), std::string::npos);
  EXPECT_NE(content.find(token.id), std::string::npos);
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(JoinTokenRegisterTest, ForgetsTokensAWeekAfterTheyExpired) {
  Make("n1");
  Make("n2", kNow + 8 * 24 * kHour);
  const auto left = book_.List();
  ASSERT_EQ(left->size(), 1U);
  EXPECT_EQ(left->front().node, "n2");
}

TEST_F(JoinTokenRegisterTest, WithdrawsATokenForGood) {
  const JoinToken token = Make("n7");
  EXPECT_EQ(book_.Withdraw(token.id), OkStatus());
  EXPECT_EQ(Redeem(token, "n7"), StatusCode::kUnauthenticated);
  EXPECT_EQ(book_.Withdraw(token.id).code(), StatusCode::kNotFound);
}

TEST_F(JoinTokenRegisterTest, MakesNoTokenThatLivesTooLongOrForNoName) {
  EXPECT_FALSE(book_.Make("n7", std::chrono::hours(24 * 8), "a", kNow).ok());
  EXPECT_FALSE(book_.Make("n7", Duration::zero(), "a", kNow).ok());
  EXPECT_FALSE(book_.Make("a/b", kJoinTokenLifetime, "a", kNow).ok());
}

TEST_F(JoinTokenRegisterTest, NamesItsFileWhereThatIsNoBook) {
  for (const char* text : {"", "[]", "{}", R"({"tokens": 1})", R"({"tokens": [{}]})",
                           R"({"tokens": [{"id": 3}]})", R"({"tokens": [null]})"}) {
    ASSERT_TRUE(WriteFileAtomically(path_, text, 0600).ok());
    const auto list = book_.List();
    EXPECT_EQ(list.status().code(), StatusCode::kDataLoss) << text;
    EXPECT_NE(list.status().message().find(path_), std::string::npos);
    EXPECT_FALSE(book_.Make("n7", kJoinTokenLifetime, "a", kNow).ok());
    EXPECT_EQ(*ReadFile(path_), text);
  }
}

}  // namespace
}  // namespace muster
