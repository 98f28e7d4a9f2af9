#include "common/security/enrolment.h"

#include <signal.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "common/base/cluster_paths.h"
#include "common/security/certificate_request.h"
#include "common/security/issued_register.h"
#include "common/security/revocation.h"
#include "common/security/testing/authority.h"
#include "common/security/testing/verify_certificate.h"

namespace muster {
namespace {

class EnrolmentTest : public AuthorityForTest {
 protected:
  JoinToken Token(const std::string& node, std::int64_t now_ms = kNowForTest) {
    return *ParseJoinToken(*enrolment_.MakeToken(node, kJoinTokenLifetime, now_ms));
  }
  Result<std::string> Join(const JoinToken& token, const std::string& node = "n7",
                           std::int64_t now_ms = kNowForTest) {
    return JoinWith(request_.csr_pem, token, node, now_ms);
  }
  Result<std::string> JoinWith(const std::string& csr_pem, const JoinToken& token,
                               const std::string& node = "n7", std::int64_t now_ms = kNowForTest) {
    const JoinRequest request{token.id, token.secret, node, csr_pem};
    return enrolment_.Join({&request, 1}, now_ms)[0];
  }
  Result<std::string> Renew(const std::string& certificate_pem, std::int64_t now_ms) {
    const RenewRequest request{*ReadCertificate(certificate_pem), request_.csr_pem};
    return enrolment_.Renew({&request, 1}, now_ms)[0];
  }
  void RevokeNode(std::int64_t now_ms) {
    ASSERT_EQ(Revoke(paths_.RevokedCertificates(),
                     {.identity = IdentityUri(Node("n7")), .revoked_ms = now_ms}),
              OkStatus());
  }
  Status Check(const std::string& certificate_pem) {
    return LoadRevocations(paths_.RevokedCertificates())->Check(*ReadCertificate(certificate_pem));
  }

  const SecurityPaths paths_{temp_ / "security"};
  const CertificateAuthority made_ = MakeAuthority();
  const Enrolment enrolment_ = *Enrolment::Open(paths_.dir);
  const KeyAndRequest request_ = *MakeCertificateRequest(Node("n7"));
};

TEST_F(EnrolmentTest, GivesTheNodeACertificateForItsToken) {
  const JoinToken token = Token("n7");
  EXPECT_EQ(token.cluster, "lab");
  const auto certificate = Join(token);
  ASSERT_TRUE(certificate.ok()) << certificate.status().ToString();
  // The node believes the authority that its token has.
  const auto info = VerifyCertificate(*certificate, token.ca_pem, Purpose::kServer, kNowForTest);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->identity, Node("n7"));
  EXPECT_EQ(info->not_after_ms, kNowForTest + kDayMs);
  EXPECT_EQ(CheckBelongTogether(token.ca_pem, *certificate, request_.key_pem), OkStatus());
  const KeyAndRequest other = *MakeCertificateRequest(Node("n7"));
  EXPECT_EQ(JoinWith(other.csr_pem, token).status().code(), StatusCode::kPermissionDenied);
}

TEST_F(EnrolmentTest, GivesTheSameCertificateAgainWhereTheAnswerWasLost) {
  for (const std::string node : {"n7", ""}) {
    const JoinToken token = Token(node);
    const std::string name = node.empty() ? "n8" : node;
    const auto first = Join(token, name);
    ASSERT_TRUE(first.ok()) << first.status().ToString();
    const auto again = Join(token, name, kNowForTest + kMinuteMs);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(*again, *first);
  }
  EXPECT_EQ(ReadIssued(paths_.IssuedCertificates())->size(), 2U);
}

TEST_F(EnrolmentTest, RegistersACertificateThatACrashHasKeptFromTheRegister) {
  const JoinToken token = Token("n7");
  const std::string certificate = *Join(token);
  std::filesystem::remove(paths_.IssuedCertificates());
  EXPECT_EQ(*Join(token), certificate);
  EXPECT_EQ(*ReadIssued(paths_.IssuedCertificates()), std::vector{*ReadCertificate(certificate)});
}

// The largest file that may be written, for as long as it lives: writes beyond it fail, or end in
// the middle, as those on a disk without room do.
class FullDisk {
 public:
  explicit FullDisk(std::uintmax_t bytes) : before_signal_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, before_signal_);
  }

 private:
  rlimit before_{};
  void (*before_signal_)(int);
};

TEST_F(EnrolmentTest, UsesUpNoTokenOnAFullDisk) {
  const JoinToken token = Token("n7");
  {
    const FullDisk full(64);
    EXPECT_FALSE(Join(token).ok());
  }
  EXPECT_EQ(ReadIssued(paths_.IssuedCertificates())->size(), 0U);
  // Nor did the key that was refused take it: another one may have it.
  const KeyAndRequest other = *MakeCertificateRequest(Node("n7"));
  const auto certificate = JoinWith(other.csr_pem, token);
  EXPECT_TRUE(certificate.ok()) << certificate.status().ToString();
}

TEST_F(EnrolmentTest, GivesTheSameCertificateAfterTheDiskWasFullForTheRegister) {
  // So that the register is larger than the book, and the first to find no room.
  for (int i = 0; i < 40; ++i) IssueNode(made_, "other-" + std::to_string(i));
  const JoinToken token = Token("n7");
  const std::uintmax_t bytes = std::filesystem::file_size(paths_.IssuedCertificates());
  ASSERT_GT(bytes, 4096U);
  {
    const FullDisk full(bytes + 10);
    EXPECT_FALSE(Join(token).ok());
  }
  const auto book = JoinTokenRegister(paths_.JoinTokens(), "lab").List();
  ASSERT_TRUE(book.ok()) << book.status().ToString();
  const std::string promised = book->at(0).certificate_pem;
  ASSERT_NE(promised, "");
  EXPECT_EQ(ReadIssued(paths_.IssuedCertificates())->size(), 40U);
  const auto again = Join(token);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(*again, promised);
  EXPECT_EQ(ReadIssued(paths_.IssuedCertificates())->size(), 41U);
}

TEST_F(EnrolmentTest, RenewsNothingThatAFullDiskKeepsFromTheRegister) {
  const std::string certificate = *Join(Token("n7"));
  {
    const FullDisk full(64);
    EXPECT_FALSE(Renew(certificate, kNowForTest).ok());
  }
  EXPECT_EQ(ReadIssued(paths_.IssuedCertificates())->size(), 1U);
  EXPECT_TRUE(Renew(certificate, kNowForTest).ok());
}

TEST_F(EnrolmentTest, SignsNothingOnceThereIsAnotherAuthority) {
  const std::string certificate = *Join(Token("n7"));
  // As `muster init --force` does it, under a coordinator that has not seen it yet.
  std::filesystem::rename(paths_.dir, paths_.dir + ".replaced");
  const CertificateAuthority next = MakeAuthority();
  const Enrolment after = *Enrolment::Open(paths_.dir);
  const JoinToken token = *ParseJoinToken(*after.MakeToken("n7", kJoinTokenLifetime, kNowForTest));
  EXPECT_EQ(Join(token).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Renew(certificate, kNowForTest).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReadIssued(paths_.IssuedCertificates())->size(), 0U);
  const JoinRequest request{token.id, token.secret, "n7", request_.csr_pem};
  EXPECT_TRUE(after.Join({&request, 1}, kNowForTest)[0].ok());
}

TEST_F(EnrolmentTest, GivesNoCertificateAgainThatWasRevoked) {
  const JoinToken token = Token("n7");
  const std::string certificate = *Join(token);
  ASSERT_EQ(Revoke(paths_.RevokedCertificates(),
                   {.serial = ReadCertificate(certificate)->serial, .revoked_ms = kNowForTest + 1}),
            OkStatus());
  EXPECT_EQ(Join(token).status().code(), StatusCode::kUnauthenticated);
  RevokeNode(kNowForTest + 5000);
  EXPECT_EQ(Join(token, "n7", kNowForTest + 6000).status().code(), StatusCode::kPermissionDenied);
}

TEST_F(EnrolmentTest, LetsAWholeClusterInAtOnce) {
  constexpr int kNodes = 24;
  std::vector<JoinRequest> requests;
  for (int i = 0; i < kNodes; ++i) {
    const JoinToken token = Token(i % 2 == 0 ? "m" + std::to_string(i) : "");
    requests.push_back({token.id, token.secret, "m" + std::to_string(i), request_.csr_pem});
  }
  // A node that wants another one's name, in the same moment.
  const JoinToken any = Token("");
  requests.push_back({any.id, any.secret, "m1", MakeCertificateRequest(Node("m1"))->csr_pem});
  const FileStamp before = StampOf(paths_.JoinTokens());
  const TimePoint begin = SystemClock().Now();
  const auto certificates = enrolment_.Join(requests, kNowForTest);
  std::printf("%d nodes joined in %.3f s\n", kNodes, ToSeconds(SystemClock().Now() - begin));
  ASSERT_EQ(certificates.size(), requests.size());
  for (int i = 0; i < kNodes; ++i) {
    ASSERT_TRUE(certificates[i].ok()) << certificates[i].status().ToString();
    EXPECT_EQ(ReadCertificate(*certificates[i])->identity, Node(requests[i].node));
  }
  EXPECT_EQ(certificates.back().status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(ReadIssued(paths_.IssuedCertificates())->size(), std::size_t{kNodes});
  EXPECT_NE(StampOf(paths_.JoinTokens()), before);
  // All of them again, as after a lost answer: nothing needs to be written.
  const FileStamp after = StampOf(paths_.JoinTokens());
  EXPECT_TRUE(enrolment_.Join(requests, kNowForTest).front().ok());
  EXPECT_EQ(StampOf(paths_.JoinTokens()), after);
}

TEST_F(EnrolmentTest, UsesUpNoTokenForARequestThatIsNone) {
  const JoinToken token = Token("n7");
  EXPECT_EQ(JoinWith("nonsense", token).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Join(token).ok());
}

TEST_F(EnrolmentTest, GivesNoNodeAnothersNameByATokenForAnyNode) {
  ASSERT_TRUE(Join(Token("n7")).ok());
  const JoinToken any = Token("");
  EXPECT_EQ(Join(any).status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(Join(any, "n8").ok());
  // Once the other one's certificate has expired, the name is free.
  const std::int64_t later = kNowForTest + 2 * kDayMs;
  EXPECT_TRUE(Join(Token("", later), "n7", later).ok());
}

TEST_F(EnrolmentTest, RenewsWhatIsGood) {
  const std::string first = *Join(Token("n7"));
  const std::int64_t later = kNowForTest + 16 * kHourMs;
  const auto second = Renew(first, later);
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_EQ(ReadCertificate(*second)->identity, Node("n7"));
  EXPECT_EQ(ReadCertificate(*second)->not_after_ms, later + kDayMs);
  EXPECT_NE(ReadCertificate(*second)->serial, ReadCertificate(first)->serial);
  EXPECT_EQ(Renew(first, kNowForTest + kDayMs).status().code(), StatusCode::kUnauthenticated);
}

TEST_F(EnrolmentTest, RenewsForNodesOnly) {
  for (const Role role : {Role::kAdmin, Role::kCoordinator, Role::kScraper}) {
    const auto issued = made_.Issue({role, "n7", "lab"}, std::chrono::hours(1), kNowForTest);
    EXPECT_EQ(Renew(issued->certificate_pem, kNowForTest).status().code(),
              StatusCode::kPermissionDenied);
  }
}

TEST_F(EnrolmentTest, LetsARevokedNodeNeitherRenewNorReturnUnasked) {
  const std::string certificate = *Join(Token("n7"));
  const JoinToken from_before = Token("n7");
  RevokeNode(kNowForTest + 5000);
  EXPECT_EQ(Renew(certificate, kNowForTest + 6000).status().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(Join(from_before, "n7", kNowForTest + 6000).status().code(),
            StatusCode::kPermissionDenied);
  // A day later its name would be free; a token for any node does not bring it back.
  const std::int64_t later = kNowForTest + 2 * kDayMs;
  EXPECT_EQ(Join(Token("", later), "n7", later).status().code(), StatusCode::kPermissionDenied);
}

TEST_F(EnrolmentTest, LetsARevokedNodeReturnByATokenMadeForItAfterwards) {
  const std::string old_certificate = *Join(Token("n7"));
  RevokeNode(kNowForTest + 5000);
  const auto readmitted = Join(Token("n7", kNowForTest + 7000), "n7", kNowForTest + 8000);
  ASSERT_TRUE(readmitted.ok()) << readmitted.status().ToString();
  EXPECT_EQ(Check(*readmitted), OkStatus());
  EXPECT_EQ(Check(old_certificate).code(), StatusCode::kUnauthenticated);
  EXPECT_TRUE(Renew(*readmitted, kNowForTest + 9000).ok());
  EXPECT_FALSE(Renew(old_certificate, kNowForTest + 9000).ok());
}

TEST_F(EnrolmentTest, SignsNothingWhileItCannotReadTheRevocations) {
  const std::string certificate = *Join(Token("n7"));
  const JoinToken token = Token("n7");
  ASSERT_TRUE(WriteFileAtomically(paths_.RevokedCertificates(), "{").ok());
  EXPECT_EQ(Renew(certificate, kNowForTest).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(Join(token).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ReadIssued(paths_.IssuedCertificates())->size(), 1U);
}

}  // namespace
}  // namespace muster
