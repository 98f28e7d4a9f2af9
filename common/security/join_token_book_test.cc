#include "common/security/join_token_book.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "common/base/files.h"
#include "common/process/temp_dir_for_test.h"

namespace muster {
namespace {

constexpr std::int64_t kNow = 1'800'000'000'000;
constexpr std::int64_t kHour = 3'600'000;

class JoinTokenBookTest : public ::testing::Test {
 protected:
  JoinToken Make(const std::string& node, std::int64_t now_ms = kNow) {
    return *book_.Make(node, kJoinTokenLifetime, "authority", now_ms);
  }
  StatusCode Redeem(const JoinToken& token, const std::string& node, std::int64_t now_ms = kNow) {
    return book_.Redeem(token.id, token.secret, node, now_ms).status().code();
  }

  const TempDirForTest temp_;
  const std::string path_ = temp_ / "join-tokens.json";
  const JoinTokenBook book_{path_, "lab"};
};

TEST_F(JoinTokenBookTest, LetsTheNodeInOnce) {
  const JoinToken token = Make("n7");
  EXPECT_EQ(token.expires_ms, kNow + kHour);
  const auto redeemed = book_.Redeem(token.id, token.secret, "n7", kNow + 5);
  ASSERT_TRUE(redeemed.ok()) << redeemed.status().ToString();
  EXPECT_EQ(redeemed->identity, (Identity{Role::kNode, "n7", "lab"}));
  EXPECT_FALSE(redeemed->for_any_node);
  EXPECT_EQ(redeemed->made_ms, kNow);
  const auto again = book_.Redeem(token.id, token.secret, "n7", kNow + 6);
  EXPECT_EQ(again.status().code(), StatusCode::kPermissionDenied);
  EXPECT_NE(again.status().message().find("was used by node n7"), std::string::npos)
      << again.status().message();
}

TEST_F(JoinTokenBookTest, LetsAnyNodeInByATokenForAnyNode) {
  const auto redeemed = book_.Redeem(Make("").id, "", "n9", kNow);
  EXPECT_EQ(redeemed.status().code(), StatusCode::kUnauthenticated);
  const JoinToken token = Make("");
  const auto any = book_.Redeem(token.id, token.secret, "n9", kNow);
  ASSERT_TRUE(any.ok());
  EXPECT_TRUE(any->for_any_node);
  EXPECT_EQ(any->identity.name, "n9");
}

TEST_F(JoinTokenBookTest, LetsNoOtherNodeInAndKeepsTheTokenForItsOwn) {
  const JoinToken token = Make("n7");
  EXPECT_EQ(Redeem(token, "n8"), StatusCode::kPermissionDenied);
  EXPECT_EQ(Redeem(token, "n7.x"), StatusCode::kPermissionDenied);
  EXPECT_EQ(Redeem(token, "n"), StatusCode::kPermissionDenied);
  EXPECT_EQ(Redeem(token, "../n7"), StatusCode::kInvalidArgument);
  EXPECT_EQ(Redeem(token, "n7"), StatusCode::kOk);
}

TEST_F(JoinTokenBookTest, LetsNobodyInOnceTheTokenHasExpired) {
  const JoinToken token = Make("n7");
  EXPECT_EQ(Redeem(token, "n7", kNow + kHour), StatusCode::kPermissionDenied);
  EXPECT_EQ(Redeem(token, "n7", kNow + kHour - 1), StatusCode::kOk);
}

TEST_F(JoinTokenBookTest, AnswersAlikeForUnknownTokensAndWrongSecrets) {
  const JoinToken token = Make("n7");
  for (std::size_t i = 0; i < token.secret.size(); ++i) {
    std::string secret = token.secret;
    secret[i] = static_cast<char>(secret[i] ^ 1);
    const auto wrong = book_.Redeem(token.id, secret, "n7", kNow);
    const auto unknown = book_.Redeem("0000000000000000", token.secret, "n7", kNow);
    EXPECT_EQ(wrong.status().code(), StatusCode::kUnauthenticated);
    EXPECT_EQ(wrong.status(), unknown.status());
  }
  EXPECT_EQ(Redeem(token, "n7"), StatusCode::kOk);
}

TEST_F(JoinTokenBookTest, LetsOneOfManyInWhoComeAtOnce) {
  const JoinToken token = Make("");
  std::atomic<int> let_in = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      const auto redeemed =
          JoinTokenBook(path_, "lab").Redeem(token.id, token.secret, "n" + std::to_string(i), kNow);
      if (redeemed.ok()) ++let_in;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(let_in, 1);
  EXPECT_EQ(book_.List()->front().redeemed_ms, kNow);
}

TEST_F(JoinTokenBookTest, KeepsATokenThatTheCallerDoesNotAdmit) {
  const JoinToken token = Make("n7");
  const auto refused = book_.Redeem(token.id, token.secret, "n7", kNow,
                                    [](const Redemption&) { return Aborted("not now"); });
  EXPECT_EQ(refused.status(), Aborted("not now"));
  EXPECT_EQ(Redeem(token, "n7"), StatusCode::kOk);
}

TEST_F(JoinTokenBookTest, KeepsNoSecretInItsFile) {
  const JoinToken token = Make("n7");
  const std::string content = *ReadFile(path_);
  EXPECT_EQ(content.find(token.secret), std::string::npos);
  EXPECT_NE(content.find(token.id), std::string::npos);
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(JoinTokenBookTest, ForgetsTokensAWeekAfterTheyExpired) {
  Make("n1");
  Make("n2", kNow + 8 * 24 * kHour);
  const auto left = book_.List();
  ASSERT_EQ(left->size(), 1U);
  EXPECT_EQ(left->front().node, "n2");
}

TEST_F(JoinTokenBookTest, WithdrawsATokenForGood) {
  const JoinToken token = Make("n7");
  EXPECT_EQ(book_.Withdraw(token.id), OkStatus());
  EXPECT_EQ(Redeem(token, "n7"), StatusCode::kUnauthenticated);
  EXPECT_EQ(book_.Withdraw(token.id).code(), StatusCode::kNotFound);
}

TEST_F(JoinTokenBookTest, MakesNoTokenThatLivesTooLongOrForNoName) {
  EXPECT_FALSE(book_.Make("n7", std::chrono::hours(24 * 8), "a", kNow).ok());
  EXPECT_FALSE(book_.Make("n7", Duration::zero(), "a", kNow).ok());
  EXPECT_FALSE(book_.Make("a/b", kJoinTokenLifetime, "a", kNow).ok());
}

TEST_F(JoinTokenBookTest, NamesItsFileWhereThatIsNoBook) {
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
