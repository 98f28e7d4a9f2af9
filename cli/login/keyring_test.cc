// Which keyring there is, and what becomes of a login's token with it. A script stands for
// secret-tool; tests/integration/keyring_test.py has a real keyring.
#include "cli/login/keyring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/login/login_store.h"
#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWorks[] = R"(#!/bin/sh
cd "${0%/*}" && echo "$@" >>calls
case $1 in
  store) cat >token ;;
  lookup) cat token 2>/dev/null ;;
  clear) rm token 2>/dev/null ;;
esac
)";
constexpr char kLocked[] = "#!/bin/sh\necho 'secret-tool: the collection is locked' >&2\nexit 1\n";
constexpr char kHangs[] = "#!/bin/sh\nexec sleep 60\n";

class KeyringTest : public ::testing::Test {
 protected:
  Keyring With(const std::string& script, Duration limit = Keyring::kLimit) {
    const std::string program = temp_ / "secret-tool";
    EXPECT_TRUE(WriteFileAtomically(program, script, 0700).ok());
    return Keyring(program, limit);
  }
  LoginStore StoreWith(const std::string& script, Duration limit = Keyring::kLimit) {
    return LoginStore(root_, With(script, limit));
  }
  static Login SomeLogin() {
    return {.cluster = "lab",
            .user = "ada",
            .issuer = "https://issuer.example",
            .refresh_token = "secret",
            .place = TokenPlace::kKeyring};
  }
  std::string LoginFile() const { return ReadFile(root_ + "/lab/login.json").value(); }
  bool InKeyring() const { return fs::exists(temp_ / "token"); }

  TempDirForTest temp_;
  const std::string root_ = temp_ / "clusters";
};

TEST_F(KeyringTest, ThereIsOneWhereTheProgramAndASessionBusAre) {
  (void)With(kWorks);
  const std::string path = temp_ / "";
  const std::string bus = "unix:path=/run/user/1/bus";
  EXPECT_TRUE(Keyring::Find({.path = path, .bus_address = bus}));
  EXPECT_FALSE(Keyring::Find({.path = path}));
  EXPECT_FALSE(Keyring::Find({.path = "/nowhere", .bus_address = bus}));
  EXPECT_FALSE(Keyring::Find({.path = path, .runtime_dir = temp_ / "run"}));
  ASSERT_TRUE(MakeDirectories(temp_ / "run", 0700).ok());
  ASSERT_TRUE(WriteFileAtomically(temp_ / "run/bus", "", 0600).ok());
  EXPECT_TRUE(Keyring::Find({.path = path, .runtime_dir = temp_ / "run"}));
}

TEST_F(KeyringTest, ATokenIsInTheKeyringAndInNoFileAndNoCommandLine) {
  const LoginStore store = StoreWith(kWorks);
  Login login = SomeLogin();
  ASSERT_TRUE(store.Save(&login).ok());
  EXPECT_EQ(ReadFile(temp_ / "token").value(), "secret");
  EXPECT_THAT(LoginFile(), Not(HasSubstr("secret")));
  EXPECT_THAT(ReadFile(temp_ / "calls").value(),
              testing::AllOf(HasSubstr("service muster cluster lab directory " + root_),
                             Not(HasSubstr("secret"))));
  const Login loaded = store.Load("lab").value();
  EXPECT_EQ(loaded.refresh_token, "");
  EXPECT_EQ(store.RefreshToken(loaded).value(), "secret");
}

TEST_F(KeyringTest, ATokenLeavesTheKeyringWithItsLogin) {
  const LoginStore store = StoreWith(kWorks);
  Login login = SomeLogin();
  ASSERT_TRUE(store.Save(&login).ok());
  ASSERT_TRUE(store.RemoveFromKeyring("lab").ok());
  EXPECT_FALSE(InKeyring());
  EXPECT_TRUE(store.RemoveFromKeyring("lab").ok()) << "again";
  login = SomeLogin();
  ASSERT_TRUE(store.Save(&login).ok());
  ASSERT_TRUE(store.End(login).ok());
  EXPECT_FALSE(InKeyring()) << "one that has ended";
  login = SomeLogin();
  ASSERT_TRUE(store.Save(&login).ok());
  login = SomeLogin();
  login.place = TokenPlace::kFile;
  ASSERT_TRUE(store.Save(&login).ok());
  EXPECT_FALSE(InKeyring()) << "a later login keeps its own in the file";
  EXPECT_THAT(LoginFile(), HasSubstr("secret"));
}

TEST_F(KeyringTest, WhatTheKeyringDoesNotTakeGoesIntoTheFile) {
  for (const char* script : {kLocked, kHangs}) {
    const auto begin = SystemClock().Now();
    const LoginStore store = StoreWith(script, std::chrono::milliseconds(200));
    Login login = SomeLogin();
    ASSERT_TRUE(store.Save(&login).ok());
    EXPECT_LT(SystemClock().Now() - begin, std::chrono::seconds(5));
    EXPECT_EQ(login.place, TokenPlace::kFile);
    EXPECT_THAT(login.why_in_file, HasSubstr("locked"));
    EXPECT_EQ(store.RefreshToken(store.Load("lab").value()).value(), "secret");
  }
}

TEST_F(KeyringTest, ATokenThatTheKeyringDoesNotGiveIsMissedForNowAndSaysWhatToDo) {
  Login login = SomeLogin();
  ASSERT_TRUE(StoreWith(kWorks).Save(&login).ok());
  fs::remove(temp_ / "token");
  const Status gone = StoreWith(kWorks).RefreshToken(login).status();
  const Status locked = StoreWith(kLocked).RefreshToken(login).status();
  const Status hangs =
      StoreWith(kHangs, std::chrono::milliseconds(200)).RefreshToken(login).status();
  const Status elsewhere = LoginStore(root_).RefreshToken(login).status();
  for (const Status& status : {gone, locked, hangs, elsewhere}) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << "a certificate that is good stays in use";
    EXPECT_THAT(status.message(), HasSubstr("next: muster login"));
  }
  EXPECT_THAT(locked.message(), HasSubstr("the collection is locked"));
  EXPECT_THAT(elsewhere.message(), HasSubstr("this session has no keyring"));
}

}  // namespace
}  // namespace muster
