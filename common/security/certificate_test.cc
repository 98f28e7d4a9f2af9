#include "common/security/certificate.h"

#include <openssl/err.h>

#include <random>

#include "common/security/certificate_builder.h"
#include "common/security/certificate_request.h"
#include "common/security/pem.h"
#include "common/security/testing/authority.h"
#include "common/security/testing/verify_certificate.h"

namespace muster {
namespace {

class CertificateTest : public AuthorityForTest {
 protected:
  Status Verify(const std::string& pem, std::int64_t now_ms, Purpose purpose = Purpose::kClient) {
    return VerifyCertificate(pem, authority_.certificate_pem(), purpose, now_ms).status();
  }
  const CertificateAuthority authority_ = MakeAuthority();
  const IssuedCertificate node_ = IssueNode(authority_);
};

TEST_F(CertificateTest, NamesItsOwnerAndItsTime) {
  const auto info = ReadCertificate(node_.certificate_pem);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->identity, Node("n7"));
  EXPECT_EQ(info->issued_ms, kNowForTest);
  EXPECT_EQ(info->not_after_ms, kNowForTest + kDayMs);
}

TEST_F(CertificateTest, IsBelievedWhileItIsValidAndNotASecondLonger) {
  EXPECT_EQ(Verify(node_.certificate_pem, kNowForTest), OkStatus());
  EXPECT_EQ(Verify(node_.certificate_pem, kNowForTest - 5 * kMinuteMs), OkStatus());
  EXPECT_EQ(Verify(node_.certificate_pem, kNowForTest + kDayMs - 1000), OkStatus());
  const Status late = Verify(node_.certificate_pem, kNowForTest + kDayMs + 1000);
  EXPECT_EQ(late.code(), StatusCode::kUnauthenticated);
  EXPECT_NE(late.message().find("expired"), std::string::npos) << late.message();
  const Status early = Verify(node_.certificate_pem, kNowForTest - 5 * kMinuteMs - 1000);
  EXPECT_EQ(early.code(), StatusCode::kUnauthenticated);
  EXPECT_NE(early.message().find("not yet valid"), std::string::npos) << early.message();
}

// The other authority has the same cluster and so the same subject.
TEST_F(CertificateTest, FromAnotherAuthorityIsRefused) {
  const CertificateAuthority other = MakeAuthority("other");
  EXPECT_EQ(Verify(IssueNode(other).certificate_pem, kNowForTest).code(),
            StatusCode::kUnauthenticated);
}

TEST_F(CertificateTest, IsGoodForItsPurposeOnly) {
  const auto scraper =
      authority_.Issue({Role::kScraper, "s", "lab"}, std::chrono::hours(1), kNowForTest);
  EXPECT_EQ(Verify(scraper->certificate_pem, kNowForTest, Purpose::kClient), OkStatus());
  EXPECT_EQ(Verify(scraper->certificate_pem, kNowForTest, Purpose::kServer).code(),
            StatusCode::kUnauthenticated);
}

TEST_F(CertificateTest, FromTheAuthorityItselfHasNoIdentity) {
  EXPECT_EQ(Verify(authority_.certificate_pem(), kNowForTest).code(), StatusCode::kUnauthenticated);
  EXPECT_FALSE(ReadCertificate(authority_.certificate_pem()).ok());
}

// A node that signs for others with its own key.
TEST_F(CertificateTest, SignedByANodeIsRefused) {
  const X509Ptr node = *CertificateFromPem(node_.certificate_pem);
  const KeyPtr node_key = *PrivateKeyFromPem(node_.key_pem);
  const KeyPtr own_key = *GenerateKey();
  const X509Ptr forged =
      *BuildCertificate(own_key.get(), {Role::kAdmin, "eve", "lab"},
                        {kNowForTest, kNowForTest + kHourMs}, node.get(), node_key.get());
  EXPECT_EQ(Verify(*ToPem(forged.get()), kNowForTest).code(), StatusCode::kUnauthenticated);
  EXPECT_FALSE(
      VerifyCertificate(*ToPem(forged.get()), node_.certificate_pem, Purpose::kClient, kNowForTest)
          .ok());
}

TEST_F(CertificateTest, FromAnotherClusterIsRefusedEvenWithTheSameKey) {
  const X509Ptr authority = *CertificateFromPem(authority_.certificate_pem());
  const KeyPtr authority_key = *PrivateKeyFromPem(*ReadFile(temp_ / "security/ca.key"));
  const KeyPtr key = *GenerateKey();
  const X509Ptr other =
      *BuildCertificate(key.get(), {Role::kAdmin, "a", "elsewhere"},
                        {kNowForTest, kNowForTest + kHourMs}, authority.get(), authority_key.get());
  const Status status = Verify(*ToPem(other.get()), kNowForTest);
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
  EXPECT_NE(status.message().find("this is cluster lab"), std::string::npos) << status.message();
}

TEST_F(CertificateTest, CutAnywhereIsRefused) {
  const std::string& pem = node_.certificate_pem;
  // Without its last line feed it is whole.
  for (std::size_t size = 0; size + 1 < pem.size(); size += 5)
    EXPECT_FALSE(ReadCertificate(pem.substr(0, size)).ok()) << size;
}

TEST_F(CertificateTest, ChangedAnywhereIsRefused) {
  const std::string der = *PemToDer(node_.certificate_pem);
  for (std::size_t i = 0; i < der.size(); ++i) {
    std::string changed = der;
    changed[i] = static_cast<char>(changed[i] ^ (1 << i % 8));
    const auto pem = DerToPem(changed);
    EXPECT_FALSE(pem.ok() && Verify(*pem, kNowForTest).ok()) << i;
  }
}

TEST_F(CertificateTest, FromRandomBytesIsRefusedAndLeavesNoErrorBehind) {
  std::mt19937 random(3);
  for (int i = 0; i < 1'000; ++i) {
    std::string text;
    for (std::size_t size = random() % 200; size > 0; --size) text += static_cast<char>(random());
    EXPECT_FALSE(DerToPem(text).ok());
    const std::string pem =
        "-----BEGIN CERTIFICATE-----\n" + text + "\n-----END CERTIFICATE-----\n";
    EXPECT_FALSE(ReadCertificate(pem).ok());
    EXPECT_FALSE(ReadAuthority(text).ok());
    EXPECT_FALSE(CheckCertificateRequest(text).ok());
  }
  // gRPC would take one for its own.
  EXPECT_EQ(ERR_peek_error(), 0U);
}

TEST_F(CertificateTest, GoesWithItsOwnKeyAndAuthority) {
  const IssuedCertificate other = IssueNode(authority_);
  const CertificateAuthority elsewhere = MakeAuthority("other");
  const std::string& ca = authority_.certificate_pem();
  EXPECT_EQ(CheckBelongTogether(ca, node_.certificate_pem, node_.key_pem), OkStatus());
  EXPECT_EQ(CheckBelongTogether(ca, node_.certificate_pem, other.key_pem).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      CheckBelongTogether(elsewhere.certificate_pem(), node_.certificate_pem, node_.key_pem).code(),
      StatusCode::kFailedPrecondition);
  EXPECT_FALSE(
      CheckBelongTogether(node_.certificate_pem, node_.certificate_pem, node_.key_pem).ok());
}

TEST_F(CertificateTest, IsTheSameByWayOfItsBytes) {
  const std::string der = *PemToDer(node_.certificate_pem);
  EXPECT_EQ(*DerToPem(der), node_.certificate_pem);
  EXPECT_FALSE(DerToPem(der + "x").ok());
}

TEST_F(CertificateTest, RequestsWithOtherKindsOfKeysAreRefused) {
  const OpenSslErrors errors;
  const KeyPtr key(EVP_EC_gen("secp384r1"));
  const X509RequestPtr request(X509_REQ_new());
  ASSERT_TRUE(key && request);
  ASSERT_EQ(X509_REQ_set_pubkey(request.get(), key.get()), 1);
  ASSERT_GT(X509_REQ_sign(request.get(), key.get(), EVP_sha256()), 0);
  const Status status = CheckCertificateRequest(*ToPem(request.get()));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("P-256"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace muster
