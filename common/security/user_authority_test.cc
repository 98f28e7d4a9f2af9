#include "common/security/user_authority.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "common/security/certificate_request.h"
#include "common/security/credentials.h"
#include "common/security/testing/authority.h"
#include "common/security/testing/forged_certificate.h"
#include "common/security/testing/verify_certificate.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class UserAuthorityTest : public AuthorityForTest {
 protected:
  void SetUp() override {
    const auto made = UserAuthority::Ensure(authority_, dir_, kNowForTest);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    EXPECT_TRUE(*made);
  }
  Result<UserAuthority> Open() { return UserAuthority::Open(dir_, authority_.certificate_pem()); }
  Result<std::string> Sign(Duration lifetime = 1h, const std::string& user = "ada",
                           std::int64_t now_ms = kNowForTest) {
    return Open().value().Sign(own_.csr_pem, user, lifetime, now_ms);
  }
  // The verdict of a peer's TLS on a chain.
  Status Verdict(const std::string& chain_pem, const std::string& root_pem, Purpose purpose) {
    const auto chain = CertificatesFromPem(chain_pem);
    EXPECT_TRUE(chain.ok());
    const auto root = CertificateFromPem(root_pem);
    return VerifyChain(chain->front().get(), root->get(), purpose, kNowForTest,
                       chain->size() > 1 ? (*chain)[1].get() : nullptr);
  }
  std::string Root() { return ReadFile(UserAuthority::RootPath(dir_)).value(); }

  const CertificateAuthority authority_ = MakeAuthority();
  const std::string dir_ = temp_ / "security/users";
  const KeyAndRequest own_ = *MakeCertificateRequest({Role::kUser, "login", "lab"});
};

TEST_F(UserAuthorityTest, SignsForUsersWhoAreBelievedWhereItsRootIs) {
  const auto chain = Sign();
  ASSERT_TRUE(chain.ok()) << chain.status().ToString();
  const auto info = ReadCertificate(*chain);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(IdentityUri(info->identity), "muster://lab/user/ada");
  EXPECT_EQ(info->issued_ms, kNowForTest);
  EXPECT_EQ(info->not_after_ms, kNowForTest + kHourMs);
  EXPECT_TRUE(Verdict(*chain, Root(), Purpose::kClient).ok());
  EXPECT_FALSE(Verdict(*chain, Root(), Purpose::kServer).ok());
  EXPECT_FALSE(Verdict(*chain, authority_.certificate_pem(), Purpose::kClient).ok())
      << "programs that have ca.pem alone believe no such chain";
  EXPECT_TRUE(Verdict(IssueNode(authority_).certificate_pem, Root(), Purpose::kClient).ok())
      << "whom ca.pem vouches for its root vouches for too";
}

TEST_F(UserAuthorityTest, ItsCertificatesAreCredentials) {
  const std::string dir = temp_ / "login";
  const Status written =
      WriteCredentials(dir, {authority_.certificate_pem(), *Sign(), own_.key_pem});
  ASSERT_TRUE(written.ok()) << written.ToString();
  const auto credentials = LoadCredentials(dir);
  ASSERT_TRUE(credentials.ok()) << credentials.status().ToString();
  EXPECT_EQ(credentials->identity.name, "ada");
  const CertificateAuthority stranger = MakeAuthority("other");
  EXPECT_FALSE(CheckBelongTogether(stranger.certificate_pem(), *Sign(), own_.key_pem).ok());
  const std::string leaf = Sign()->substr(0, Sign()->find("-----BEGIN", 1));
  EXPECT_FALSE(CheckBelongTogether(authority_.certificate_pem(), leaf, own_.key_pem).ok())
      << "without what stands between";
}

TEST_F(UserAuthorityTest, WhatItsKeySignsForAnotherRoleIsNoCertificateOfMuster) {
  for (const Role role : kRoles) {
    const IssuedCertificate forged = ForgeForTest(dir_, {role, "eve", "lab"}, kNowForTest);
    const auto read = ReadCertificate(forged.certificate_pem);
    EXPECT_EQ(read.ok(), role == Role::kUser) << RoleWord(role);
    EXPECT_THAT(read.status().message(), HasSubstr(read.ok() ? "" : "which it may not"));
    EXPECT_FALSE(Verdict(forged.certificate_pem, Root(), Purpose::kServer).ok())
        << "no server: " << RoleWord(role);
  }
}

TEST_F(UserAuthorityTest, SignsForAnHourAtMost) {
  EXPECT_FALSE(Sign(1h + 1s).ok());
  EXPECT_FALSE(Sign(59s).ok());
  EXPECT_TRUE(Sign(1min).ok());
  EXPECT_FALSE(Sign(1h, "a/b").ok());
  EXPECT_FALSE(Sign(1h, "").ok());
  EXPECT_FALSE(Sign(1h, "ada", authority_.info().not_after_ms).ok());
  EXPECT_FALSE(Open()->Sign("no request", "ada", 1h, kNowForTest).ok());
}

TEST_F(UserAuthorityTest, ASecondRunChangesNothing) {
  const std::string before = ReadFile(dir_ + "/cert.pem").value();
  EXPECT_FALSE(*UserAuthority::Ensure(authority_, dir_, kNowForTest + kDayMs));
  EXPECT_EQ(ReadFile(dir_ + "/cert.pem").value(), before);
}

TEST_F(UserAuthorityTest, OneThatACrashHasLeftHalfMadeIsMadeAnew) {
  std::filesystem::remove(dir_ + "/cert.pem");
  EXPECT_EQ(Open().status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(*UserAuthority::Ensure(authority_, dir_, kNowForTest));
  EXPECT_TRUE(Open().ok());
}

TEST_F(UserAuthorityTest, RefusesAnotherAuthoritysAndAKeyThatOthersMayRead) {
  const CertificateAuthority stranger = MakeAuthority("other");
  EXPECT_EQ(UserAuthority::Open(dir_, stranger.certificate_pem()).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_FALSE(UserAuthority::Ensure(stranger, dir_, kNowForTest).ok());
  ASSERT_EQ(::chmod((dir_ + "/key.pem").c_str(), 0640), 0);
  EXPECT_EQ(Open().status().code(), StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace muster
