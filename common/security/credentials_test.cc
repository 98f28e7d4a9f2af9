#include "common/security/credentials.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "common/base/json.h"
#include "common/security/testing/authority.h"

namespace muster {
namespace {

class CredentialsTest : public AuthorityForTest {
 protected:
  CredentialFiles Files(const std::string& name = "n7") {
    const IssuedCertificate issued = IssueNode(authority_, name);
    return {authority_.certificate_pem(), issued.certificate_pem, issued.key_pem};
  }
  const CertificateAuthority authority_ = MakeAuthority();
  const std::string dir_ = temp_ / "node";
};

TEST_F(CredentialsTest, AreReadAsTheyWereWritten) {
  const CredentialFiles files = Files();
  ASSERT_EQ(WriteCredentials(dir_, files), OkStatus());
  const auto read = LoadCredentials(dir_);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->ca_pem, files.ca_pem);
  EXPECT_EQ(read->cert_pem, files.cert_pem);
  EXPECT_EQ(read->key_pem, files.key_pem);
  EXPECT_EQ(read->identity, Node("n7"));
  EXPECT_EQ(read->serial, ReadCertificate(files.cert_pem)->serial);
  EXPECT_EQ(read->not_after_ms, kNowForTest + kDayMs);
  EXPECT_EQ(*ReadFile(dir_ + "/cert.pem"), files.cert_pem);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/replacement.json"));
  EXPECT_EQ(std::filesystem::status(dir_ + "/key.pem").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(CredentialsTest, AreRefusedWhenOthersMayHaveTheKey) {
  ASSERT_EQ(WriteCredentials(dir_, Files()), OkStatus());
  const std::string key = dir_ + "/key.pem";
  ASSERT_EQ(::chmod(key.c_str(), 0644), 0);
  const auto read = LoadCredentials(dir_);
  EXPECT_EQ(read.status().code(), StatusCode::kPermissionDenied);
  EXPECT_NE(read.status().message().find("chmod 600 " + key), std::string::npos)
      << read.status().message();
}

TEST_F(CredentialsTest, ThatAreNotThereAreAnErrorThatNamesTheCommand) {
  const auto read = LoadCredentials(temp_ / "nowhere");
  EXPECT_EQ(read.status().code(), StatusCode::kNotFound);
  EXPECT_NE(read.status().message().find("muster certs"), std::string::npos);
}

TEST_F(CredentialsTest, ThatDoNotBelongTogetherAreNeitherWrittenNorRead) {
  CredentialFiles mixed = Files();
  mixed.key_pem = Files().key_pem;
  EXPECT_EQ(WriteCredentials(dir_, mixed).code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(std::filesystem::exists(dir_));
  ASSERT_EQ(WriteCredentials(dir_, Files()), OkStatus());
  ASSERT_TRUE(WriteFileAtomically(dir_ + "/key.pem", mixed.key_pem, 0600).ok());
  EXPECT_EQ(LoadCredentials(dir_).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(CredentialsTest, AreWholeAfterACrashAnywhereInAReplacement) {
  const CredentialFiles old = Files();
  const CredentialFiles next = Files();
  const nlohmann::json replacement = {
      {"ca", next.ca_pem}, {"cert", next.cert_pem}, {"key", next.key_pem}};
  // How many of its steps the writer had come to.
  for (int steps = 0; steps <= 3; ++steps) {
    ASSERT_EQ(WriteCredentials(dir_, old), OkStatus());
    if (steps >= 1) {
      ASSERT_TRUE(WriteFileAtomically(dir_ + "/replacement.json", replacement.dump(), 0600).ok());
    }
    if (steps >= 2) {
      ASSERT_TRUE(WriteFileAtomically(dir_ + "/cert.pem", next.cert_pem).ok());
    }
    if (steps >= 3) {
      ASSERT_TRUE(WriteFileAtomically(dir_ + "/key.pem", next.key_pem, 0600).ok());
    }
    const auto read = LoadCredentials(dir_);
    ASSERT_TRUE(read.ok()) << steps << ": " << read.status().ToString();
    EXPECT_EQ(read->cert_pem, steps == 0 ? old.cert_pem : next.cert_pem) << steps;
    EXPECT_EQ(read->key_pem, steps == 0 ? old.key_pem : next.key_pem) << steps;
    ASSERT_EQ(MendCredentials(dir_), OkStatus()) << steps;
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/replacement.json")) << steps;
    EXPECT_EQ(*ReadFile(dir_ + "/cert.pem"), read->cert_pem) << steps;
    EXPECT_EQ(*ReadFile(dir_ + "/key.pem"), read->key_pem) << steps;
  }
}

TEST_F(CredentialsTest, ThatWereCopiedInCountBeforeWhatACrashHasLeft) {
  ASSERT_EQ(WriteCredentials(dir_, Files("left")), OkStatus());
  const CredentialFiles left = Files("left");
  const nlohmann::json replacement = {
      {"ca", left.ca_pem}, {"cert", left.cert_pem}, {"key", left.key_pem}};
  ASSERT_TRUE(WriteFileAtomically(dir_ + "/replacement.json", replacement.dump(), 0600).ok());
  const CredentialFiles copied = Files("copied");
  // Until the file system's clock has ticked.
  const auto changed = [this](const char* file) {
    struct stat info {};
    EXPECT_EQ(::stat((dir_ + file).c_str(), &info), 0);
    return std::pair(info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
  };
  do {
    ASSERT_TRUE(WriteFileAtomically(dir_ + "/cert.pem", copied.cert_pem).ok());
    ASSERT_TRUE(WriteFileAtomically(dir_ + "/key.pem", copied.key_pem, 0600).ok());
  } while (changed("/cert.pem") <= changed("/replacement.json"));
  ASSERT_EQ(MendCredentials(dir_), OkStatus());
  const auto read = LoadCredentials(dir_);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->identity.name, "copied");
}

TEST_F(CredentialsTest, AreNeverMixedWhileTheyAreReplaced) {
  const CredentialFiles one = Files("n1");
  const CredentialFiles two = Files("n2");
  ASSERT_EQ(WriteCredentials(dir_, one), OkStatus());
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int i = 0; i < 30; ++i)
      EXPECT_EQ(WriteCredentials(dir_, i % 2 == 0 ? two : one), OkStatus());
    done = true;
  });
  int reads = 0;
  while (!done) {
    const auto read = LoadCredentials(dir_);
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    if (!read.ok()) continue;
    const CredentialFiles& expected = read->identity.name == "n1" ? one : two;
    EXPECT_EQ(read->key_pem, expected.key_pem);
    ++reads;
  }
  writer.join();
  EXPECT_GT(reads, 0);
}

TEST_F(CredentialsTest, ThatAreNoneAreRefusedWhateverTheyHold) {
  const CredentialFiles good = Files();
  for (const char* file : {"ca.pem", "cert.pem", "key.pem"}) {
    for (const std::string& text :
         {std::string(), std::string("x"), std::string(1000, '\0'), good.key_pem.substr(0, 60)}) {
      ASSERT_EQ(WriteCredentials(dir_, good), OkStatus());
      ASSERT_TRUE(WriteFileAtomically(dir_ + "/" + file, text, 0600).ok());
      EXPECT_FALSE(LoadCredentials(dir_).ok()) << file;
    }
  }
  ASSERT_TRUE(WriteFileAtomically(dir_ + "/replacement.json", "{", 0600).ok());
  EXPECT_EQ(LoadCredentials(dir_).status().code(), StatusCode::kDataLoss);
}

TEST_F(CredentialsTest, AreRenewedWhileAThirdOfTheirTimeIsLeft) {
  ASSERT_EQ(WriteCredentials(dir_, Files()), OkStatus());
  const auto read = LoadCredentials(dir_);
  EXPECT_EQ(RenewalDueMs(*read), kNowForTest + 16 * kHourMs);
  EXPECT_EQ(CheckNotExpired(*read, kNowForTest + kDayMs - 1), OkStatus());
  const Status expired = CheckNotExpired(*read, kNowForTest + kDayMs);
  EXPECT_EQ(expired.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(expired.message().find("muster certs join-token --node n7"), std::string::npos)
      << expired.message();
  Credentials person = *read;
  person.identity = {Role::kAdmin, "alice", "lab"};
  EXPECT_NE(CheckNotExpired(person, kNowForTest + kDayMs)
                .message()
                .find("muster certs issue --role admin --name alice --out DIRECTORY"),
            std::string::npos);
}

TEST_F(CredentialsTest, AreKeptInOneFileForServersAndWrittenThereOnlyWhenTheyHaveChanged) {
  ASSERT_EQ(WriteCredentials(dir_, Files()), OkStatus());
  const auto first = LoadCredentials(dir_);
  const auto path = KeepServingFile(dir_, *first);
  ASSERT_TRUE(path.ok()) << path.status().ToString();
  EXPECT_EQ(*ReadPrivateFile(*path, Privacy::kSecret), first->key_pem + first->cert_pem);
  const FileStamp stamp = StampOf(*path);
  ASSERT_TRUE(KeepServingFile(dir_, *first).ok());
  EXPECT_EQ(StampOf(*path), stamp);
  ASSERT_EQ(WriteCredentials(dir_, Files()), OkStatus());
  const auto second = LoadCredentials(dir_);
  ASSERT_TRUE(KeepServingFile(dir_, *second).ok());
  EXPECT_EQ(*ReadPrivateFile(*path, Privacy::kSecret), second->key_pem + second->cert_pem);
  // A mode that lets others read it is no file to go on with.
  ASSERT_EQ(::chmod(path->c_str(), 0644), 0);
  ASSERT_TRUE(KeepServingFile(dir_, *second).ok());
  EXPECT_TRUE(ReadPrivateFile(*path, Privacy::kSecret).ok());
}

TEST_F(CredentialsTest, ShowByTheirStampThatTheyWereReplaced) {
  const CredentialsStamp none = StampOfCredentials(dir_);
  ASSERT_EQ(WriteCredentials(dir_, Files()), OkStatus());
  const CredentialsStamp first = StampOfCredentials(dir_);
  EXPECT_NE(first, none);
  EXPECT_EQ(StampOfCredentials(dir_), first);
  ASSERT_EQ(WriteCredentials(dir_, Files()), OkStatus());
  EXPECT_NE(StampOfCredentials(dir_), first);
}

}  // namespace
}  // namespace muster
