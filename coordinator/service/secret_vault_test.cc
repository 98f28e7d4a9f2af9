#include "coordinator/service/secret_vault.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "common/base/files.h"

namespace muster {
namespace {

class SecretVaultTest : public testing::Test {
 protected:
  SecretVaultTest() {
    char dir[] = "/tmp/muster-test-XXXXXX";
    dir_ = ::mkdtemp(dir);
  }
  ~SecretVaultTest() override { std::filesystem::remove_all(dir_); }

  std::string path() const { return dir_ + "/secret-keys"; }

  std::string dir_;
  const SecretName hf_{.owner = "ada", .queue = "nlp", .name = "hf"};
};

TEST_F(SecretVaultTest, OpensWhatItHasClosedAlsoAfterARestart) {
  SecretVault vault(path(), "lab");
  ASSERT_TRUE(vault.MakeKeys().ok());
  const SecretRecord record = *vault.Close(hf_, "hf_canary");
  EXPECT_EQ(*vault.Open(record), "hf_canary");
  EXPECT_EQ(*SecretVault(path(), "lab").Open(record), "hf_canary");
  struct stat file {};
  ASSERT_EQ(::stat(path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  for (const std::string& text : {record.own_key, record.value, *ReadFile(path(), 1 << 20)})
    EXPECT_EQ(text.find("canary"), std::string::npos);
}

TEST_F(SecretVaultTest, ARecordStandsForNoOtherOne) {
  SecretVault vault(path(), "lab");
  ASSERT_TRUE(vault.MakeKeys().ok());
  const SecretRecord record = *vault.Close(hf_, "x");
  for (const SecretName& other : {SecretName{.owner = "bob", .queue = "nlp", .name = "hf"},
                                  SecretName{.owner = "ada", .queue = "vision", .name = "hf"},
                                  SecretName{.owner = "ada", .queue = "nlp", .name = "other"}}) {
    SecretRecord moved = record;
    moved.secret = other;
    EXPECT_EQ(vault.Open(moved).status().code(), StatusCode::kDataLoss);
  }
  EXPECT_EQ(SecretVault(path(), "other").Open(record).status().code(), StatusCode::kDataLoss);
  SecretRecord mixed = *vault.Close(hf_, "y");
  mixed.value = record.value;
  EXPECT_EQ(vault.Open(mixed).status().code(), StatusCode::kDataLoss);
}

TEST_F(SecretVaultTest, AnOlderKeyOpensUntilItIsDropped) {
  SecretVault vault(path(), "lab");
  ASSERT_TRUE(vault.MakeKeys().ok());
  const SecretRecord old = *vault.Close(hf_, "x");
  ASSERT_TRUE(vault.AddKey().ok());
  EXPECT_EQ(*vault.Open(old), "x");
  const SecretRecord wrapped = *vault.Rewrap(old);
  EXPECT_NE(wrapped.key_id, old.key_id);
  EXPECT_EQ(wrapped.value, old.value);
  ASSERT_TRUE(vault.DropOldKeys({old.key_id}).ok());
  EXPECT_EQ(*vault.Open(old), "x") << "a record still names it";
  ASSERT_TRUE(vault.DropOldKeys({wrapped.key_id}).ok());
  EXPECT_EQ(*vault.Open(wrapped), "x");
  EXPECT_EQ(vault.Open(old).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(*SecretVault(path(), "lab").Open(wrapped), "x");
}

TEST_F(SecretVaultTest, WithoutItsFileNothingIsOpenedAndNoOtherKeyIsMade) {
  SecretVault first(path(), "lab");
  ASSERT_TRUE(first.MakeKeys().ok());
  const SecretRecord record = *first.Close(hf_, "x");
  std::filesystem::rename(path(), path() + ".away");
  SecretVault vault(path(), "lab");
  EXPECT_EQ(vault.Close(hf_, "y").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(vault.Open(record).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(std::filesystem::exists(path()));
  ASSERT_TRUE(WriteFileAtomically(path(), "abc def\n", 0600).ok());
  EXPECT_EQ(vault.Open(record).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace muster
