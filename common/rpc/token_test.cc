#include "common/rpc/token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

class TokenTest : public testing::Test {
 protected:
  const TempDirForTest temp_;
  const std::string dir_ = temp_.path();
  const std::string path_ = temp_ / "token";
};

TEST_F(TokenTest, IsMadeOnceWithMode0600) {
  const auto token = LoadOrCreateToken(path_);
  ASSERT_TRUE(token.ok()) << token.status().ToString();
  EXPECT_EQ(token->size(), 64u);
  EXPECT_EQ(token->find_first_not_of("0123456789abcdef"), std::string::npos);
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(*LoadOrCreateToken(path_), *token);
  EXPECT_EQ(*LoadToken(path_), *token);
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(dir_)) ++entries;
  EXPECT_EQ(entries, 1);
}

TEST_F(TokenTest, TwoClustersHaveTwoTokens) {
  EXPECT_NE(*LoadOrCreateToken(path_), *LoadOrCreateToken(path_ + "2"));
}

TEST_F(TokenTest, CreatorsAtOnceEndWithTheSameToken) {
  std::vector<std::string> tokens(8);
  std::vector<std::thread> threads;
  for (std::string& token : tokens)
    threads.emplace_back([&] { token = *LoadOrCreateToken(path_); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& token : tokens) EXPECT_EQ(token, tokens[0]);
}

TEST_F(TokenTest, AFileThatOthersMayReadIsRefused) {
  ASSERT_TRUE(LoadOrCreateToken(path_).ok());
  for (const mode_t mode : {0640u, 0604u, 0620u, 0644u}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    EXPECT_EQ(LoadToken(path_).status().code(), StatusCode::kPermissionDenied) << std::oct << mode;
    EXPECT_EQ(LoadOrCreateToken(path_).status().code(), StatusCode::kPermissionDenied);
  }
}

TEST_F(TokenTest, WhatIsNoTokenIsRefused) {
  EXPECT_EQ(LoadToken(path_).status().code(), StatusCode::kNotFound);
  for (const std::string& text : {std::string(), std::string("short"), std::string(64, 'x')}) {
    ASSERT_TRUE(WriteFileAtomically(path_, text, 0600).ok());
    EXPECT_EQ(LoadToken(path_).status().code(), StatusCode::kDataLoss) << text;
  }
}

}  // namespace
}  // namespace muster
