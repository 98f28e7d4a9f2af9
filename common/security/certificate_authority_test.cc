#include "common/security/certificate_authority.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <thread>

#include "common/security/certificate_request.h"
#include "common/security/issued_register.h"
#include "common/security/testing/authority.h"
#include "common/security/testing/verify_certificate.h"

namespace muster {
namespace {

using CertificateAuthorityTest = AuthorityForTest;

int ModeOf(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<int>(info.st_mode & 0777) : -1;
}

TEST_F(CertificateAuthorityTest, IsFoundAgainWithItsClusterAndItsKey) {
  const CertificateAuthority made = MakeAuthority();
  const auto found = CertificateAuthority::Open(temp_ / "security");
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->cluster(), "lab");
  EXPECT_EQ(found->certificate_pem(), made.certificate_pem());
  EXPECT_EQ(found->info().not_before_ms, kNowForTest - 5 * kMinuteMs);
  EXPECT_EQ(found->info().not_after_ms, kNowForTest + 3652 * kDayMs);
  // What one signs, the other believes.
  EXPECT_TRUE(VerifyCertificate(IssueNode(*found).certificate_pem, made.certificate_pem(),
                                Purpose::kClient, kNowForTest)
                  .ok());
}

TEST_F(CertificateAuthorityTest, KeepsItsKeyToItself) {
  MakeAuthority();
  EXPECT_EQ(ModeOf(temp_ / "security"), 0700);
  EXPECT_EQ(ModeOf(temp_ / "security/ca.key"), 0600);
}

TEST_F(CertificateAuthorityTest, IsNeverOverwritten) {
  const CertificateAuthority made = MakeAuthority();
  EXPECT_EQ(CertificateAuthority::Create(temp_ / "security", "lab", kNowForTest).status().code(),
            StatusCode::kAlreadyExists);
  // Nor what is left of one.
  std::filesystem::remove(temp_ / "security/ca.pem");
  EXPECT_EQ(CertificateAuthority::Create(temp_ / "security", "lab", kNowForTest).status().code(),
            StatusCode::kAlreadyExists);
  EXPECT_EQ(CertificateAuthority::Open(temp_ / "security").status().code(), StatusCode::kNotFound);
}

TEST_F(CertificateAuthorityTest, IsMadeOnceByTwoAtOnce) {
  const auto create = [&](bool* made) {
    *made = CertificateAuthority::Create(temp_ / "security", "lab", kNowForTest).ok();
  };
  bool first = false;
  bool second = false;
  std::thread other(create, &second);
  create(&first);
  other.join();
  EXPECT_NE(first, second);
  EXPECT_TRUE(CertificateAuthority::Open(temp_ / "security").ok());
}

TEST_F(CertificateAuthorityTest, IsRefusedWhenOthersMayHaveItsKey) {
  MakeAuthority();
  const std::string key = temp_ / "security/ca.key";
  for (const mode_t mode : {0640U, 0604U, 0660U, 0610U}) {
    ASSERT_EQ(::chmod(key.c_str(), mode), 0);
    const auto opened = CertificateAuthority::Open(temp_ / "security");
    EXPECT_EQ(opened.status().code(), StatusCode::kPermissionDenied);
    EXPECT_NE(opened.status().message().find("chmod 600 " + key), std::string::npos)
        << opened.status().message();
  }
  ASSERT_EQ(::chmod(key.c_str(), 0600), 0);
  EXPECT_TRUE(CertificateAuthority::Open(temp_ / "security").ok());
  ASSERT_EQ(::chmod((temp_ / "security").c_str(), 0770), 0);
  EXPECT_EQ(CertificateAuthority::Open(temp_ / "security").status().code(),
            StatusCode::kPermissionDenied);
}

TEST_F(CertificateAuthorityTest, IsRefusedWithAnotherAuthoritysKey) {
  MakeAuthority("one");
  MakeAuthority("two");
  std::filesystem::copy_file(temp_ / "two/ca.key", temp_ / "one/ca.key",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(CertificateAuthority::Open(temp_ / "one").status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(CertificateAuthorityTest, IssuesForEachRoleWhatTheRoleNeeds) {
  const CertificateAuthority authority = MakeAuthority();
  for (const Role role : kRoles) {
    const Identity identity{role, "x", "lab"};
    const auto issued = authority.Issue(identity, DefaultLifetime(role), kNowForTest);
    ASSERT_TRUE(issued.ok()) << issued.status().ToString();
    EXPECT_TRUE(
        CheckBelongTogether(authority.certificate_pem(), issued->certificate_pem, issued->key_pem)
            .ok());
    const auto as_client = VerifyCertificate(issued->certificate_pem, authority.certificate_pem(),
                                             Purpose::kClient, kNowForTest);
    ASSERT_TRUE(as_client.ok()) << as_client.status().ToString();
    EXPECT_EQ(as_client->identity, identity);
    EXPECT_EQ(as_client->issued_ms, kNowForTest);
    EXPECT_EQ(VerifyCertificate(issued->certificate_pem, authority.certificate_pem(),
                                Purpose::kServer, kNowForTest)
                  .ok(),
              role == Role::kCoordinator || role == Role::kNode);
  }
}

TEST_F(CertificateAuthorityTest, SignsARequestForTheGivenIdentity) {
  const CertificateAuthority authority = MakeAuthority();
  // The request asks to be an administrator; that is ignored.
  const auto request = MakeCertificateRequest({Role::kAdmin, "eve", "elsewhere"});
  ASSERT_TRUE(request.ok());
  const auto signed_pem =
      authority.SignUnrecorded(request->csr_pem, Node("n7"), std::chrono::hours(1), kNowForTest);
  ASSERT_TRUE(signed_pem.ok()) << signed_pem.status().ToString();
  EXPECT_EQ(ReadCertificate(*signed_pem)->identity, Node("n7"));
  EXPECT_EQ(ReadIssued(temp_ / "security/issued.jsonl")->size(), 0U);
  EXPECT_TRUE(authority.Record({&*signed_pem, 1}, kNowForTest).ok());
  EXPECT_EQ(ReadIssued(temp_ / "security/issued.jsonl")->size(), 1U);
  EXPECT_TRUE(CheckBelongTogether(authority.certificate_pem(), *signed_pem, request->key_pem).ok());
}

TEST_F(CertificateAuthorityTest, SignsNoDamagedRequest) {
  const CertificateAuthority authority = MakeAuthority();
  const std::string csr = MakeCertificateRequest(Node("n7"))->csr_pem;
  int refused = 0;  // but for the last digits, of which not every bit counts
  for (std::size_t i = csr.find('\n') + 1; i + 8 < csr.find("-----END"); i += 7) {
    std::string damaged = csr;
    if (damaged[i] == '\n') continue;
    damaged[i] = damaged[i] == 'A' ? 'B' : 'A';
    const auto made =
        authority.SignUnrecorded(damaged, Node("n7"), std::chrono::hours(1), kNowForTest);
    EXPECT_FALSE(made.ok()) << i;
    refused += made.ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 20);
  EXPECT_FALSE(authority.SignUnrecorded("", Node("n7"), std::chrono::hours(1), kNowForTest).ok());
}

TEST_F(CertificateAuthorityTest, EndsNoLaterThanItself) {
  const auto authority =
      CertificateAuthority::Create(temp_ / "short", "lab", kNowForTest, std::chrono::hours(2));
  ASSERT_TRUE(authority.ok());
  const auto issued = authority->Issue(Node("n7"), std::chrono::hours(24), kNowForTest);
  EXPECT_EQ(ReadCertificate(issued->certificate_pem)->not_after_ms, kNowForTest + 2 * kHourMs);
  EXPECT_EQ(authority->Issue(Node("n7"), std::chrono::hours(24), kNowForTest + 2 * kHourMs)
                .status()
                .code(),
            StatusCode::kFailedPrecondition);
  EXPECT_FALSE(authority->Issue(Node("n7"), std::chrono::hours(24), kNowForTest - kHourMs).ok());
}

TEST_F(CertificateAuthorityTest, IssuesNothingItCannotStandFor) {
  const CertificateAuthority authority = MakeAuthority();
  const Duration hour = std::chrono::hours(1);
  EXPECT_FALSE(authority.Issue({Role::kNode, "n7", "other"}, hour, kNowForTest).ok());
  EXPECT_FALSE(authority.Issue(Node("a,DNS:coordinator.muster"), hour, kNowForTest).ok());
  EXPECT_FALSE(authority.Issue(Node(""), hour, kNowForTest).ok());
  EXPECT_FALSE(authority.Issue(Node("n7"), std::chrono::seconds(59), kNowForTest).ok());
  EXPECT_FALSE(authority.Issue(Node("n7"), -hour, kNowForTest).ok());
  EXPECT_FALSE(CertificateAuthority::Create(temp_ / "bad", "a/b", kNowForTest).ok());
  EXPECT_FALSE(std::filesystem::exists(temp_ / "bad"));
}

TEST_F(CertificateAuthorityTest, HasADifferentSerialForEachAndKeepsThemAll) {
  const CertificateAuthority authority = MakeAuthority();
  std::set<std::string> serials;
  for (int i = 0; i < 20; ++i) {
    const auto info = ReadCertificate(IssueNode(authority).certificate_pem);
    EXPECT_EQ(info->serial.size(), 32U);
    serials.insert(info->serial);
  }
  EXPECT_EQ(serials.size(), 20U);
  std::set<std::string> kept;
  const auto issued = ReadIssued(temp_ / "security/issued.jsonl");
  for (const CertificateInfo& entry : *issued) kept.insert(entry.serial);
  EXPECT_EQ(kept, serials);
}

TEST_F(CertificateAuthorityTest, HandsOutNothingThatIsNotInItsRegister) {
  const CertificateAuthority authority = MakeAuthority();
  std::filesystem::create_directory(temp_ / "security/issued.jsonl");
  EXPECT_FALSE(authority.Issue(Node("n7"), std::chrono::hours(1), kNowForTest).ok());
}

}  // namespace
}  // namespace muster
