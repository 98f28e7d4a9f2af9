#include "cli/login/login_store.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class LoginStoreTest : public ::testing::Test {
 protected:
  static Login SomeLogin() {
    return {.cluster = "lab",
            .user = "ada",
            .address = "10.0.0.1:7002",
            .coordinator = "10.0.0.1:7000",
            .issuer = "https://issuer.example",
            .client_id = "muster",
            .token_endpoint = "https://issuer.example/token",
            .issuer_ca_pem = "a\nb\n",
            .refresh_token = "secret"};
  }
  static Status Save(const LoginStore& store) {
    Login login = SomeLogin();
    return store.Save(&login);
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }

  TempDirForTest temp_;
  const LoginStore store_{temp_ / "muster/clusters"};
};

TEST_F(LoginStoreTest, KeepsALoginInFilesOfItsOwnerAlone) {
  EXPECT_EQ(store_.Current().status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_.Load("lab").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(Save(store_).ok());
  ASSERT_TRUE(store_.MakeCurrent("lab").ok());
  EXPECT_EQ(store_.Current().value(), "lab");
  const auto login = store_.Load("lab");
  ASSERT_TRUE(login.ok()) << login.status().ToString();
  EXPECT_EQ(login->refresh_token, "secret");
  EXPECT_EQ(login->issuer_ca_pem, "a\nb\n");
  EXPECT_EQ(login->revocation_endpoint, "");
  EXPECT_EQ(ModeOf(store_.DirOf("lab") + "/login.json"), 0600u);
  for (const std::string& dir : {store_.DirOf("lab"), store_.root()}) EXPECT_EQ(ModeOf(dir), 0700u);
}

TEST_F(LoginStoreTest, ALoginThatHasEndedHasNoSecretsAnyMore) {
  ASSERT_TRUE(Save(store_).ok());
  const std::string key = store_.DirOf("lab") + "/key.pem";
  ASSERT_TRUE(WriteFileAtomically(key, "key", 0600).ok());
  ASSERT_TRUE(store_.End(SomeLogin()).ok());
  EXPECT_FALSE(fs::exists(key));
  EXPECT_EQ(store_.Load("lab")->refresh_token, "");
  EXPECT_EQ(store_.Load("lab")->address, "10.0.0.1:7002") << "for the next login";
}

TEST_F(LoginStoreTest, RemovingOneLeavesTheOthers) {
  Login other = SomeLogin();
  other.cluster = "other";
  ASSERT_TRUE(Save(store_).ok());
  ASSERT_TRUE(store_.Save(&other).ok());
  ASSERT_TRUE(store_.MakeCurrent("other").ok());
  ASSERT_TRUE(store_.Remove("lab").ok());
  EXPECT_EQ(store_.Current().value(), "other");
  ASSERT_TRUE(store_.Remove("other").ok());
  EXPECT_EQ(store_.Current().status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(fs::exists(store_.DirOf("other")));
}

TEST_F(LoginStoreTest, ALoginFromBeforeThereWereKeyringsHasItsTokenInTheFile) {
  ASSERT_TRUE(Save(store_).ok());
  const std::string file = store_.DirOf("lab") + "/login.json";
  auto json = nlohmann::json::parse(ReadFile(file).value());
  json.erase("refresh_token_in");
  ASSERT_TRUE(WriteFileAtomically(file, json.dump(), 0600).ok());
  EXPECT_EQ(store_.RefreshToken(store_.Load("lab").value()).value(), "secret");
}

TEST_F(LoginStoreTest, RefusesFilesThatAreDamagedOrThatOthersMayRead) {
  ASSERT_TRUE(Save(store_).ok());
  const std::string file = store_.DirOf("lab") + "/login.json";
  ASSERT_EQ(::chmod(file.c_str(), 0640), 0);
  EXPECT_EQ(store_.Load("lab").status().code(), StatusCode::kPermissionDenied);
  ASSERT_TRUE(WriteFileAtomically(file, "{}", 0600).ok());
  EXPECT_THAT(store_.Load("lab").status().message(), HasSubstr("has no text 'cluster'"));
  for (const char* name : {"..", "a/b", "", ".hidden"})
    EXPECT_FALSE(store_.Load(name).ok()) << name;
}

}  // namespace
}  // namespace muster
