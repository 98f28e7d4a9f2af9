#include "common/security/revocation.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

constexpr std::int64_t kNow = 1'800'000'000'000;

const Identity kNode{Role::kNode, "n7", "lab"};
const std::string kSerial = "000102030405060708090a0b0c0d0e0f";
const std::string kOtherSerial = "ff0102030405060708090a0b0c0d0e0f";

CertificateInfo Certificate(const std::string& serial, std::int64_t issued_ms,
                            const Identity& identity = kNode) {
  return {identity, serial, issued_ms, issued_ms + 86'400'000};
}

class RevocationTest : public ::testing::Test {
 protected:
  StatusCode Check(const CertificateInfo& certificate) {
    return LoadRevocations(path_)->Check(certificate).code();
  }
  const TempDirForTest temp_;
  const std::string path_ = temp_ / "revoked.json";
};

TEST_F(RevocationTest, RefusesOneCertificateByItsSerial) {
  EXPECT_EQ(Check(Certificate(kSerial, kNow)), StatusCode::kOk);
  ASSERT_TRUE(Revoke(path_, {.serial = kSerial, .revoked_ms = kNow, .reason = "laptop lost"}).ok());
  const Status refused = LoadRevocations(path_)->Check(Certificate(kSerial, kNow));
  EXPECT_EQ(refused.code(), StatusCode::kUnauthenticated);
  EXPECT_NE(refused.message().find("laptop lost"), std::string::npos) << refused.message();
  EXPECT_EQ(Check(Certificate(kOtherSerial, kNow)), StatusCode::kOk);
}

TEST_F(RevocationTest, RefusesAllCertificatesOfANode) {
  ASSERT_TRUE(Revoke(path_, {.identity = IdentityUri(kNode), .revoked_ms = kNow}).ok());
  EXPECT_EQ(Check(Certificate(kSerial, kNow - 5000)), StatusCode::kUnauthenticated);
  // One that it may have got in the same moment as well.
  EXPECT_EQ(Check(Certificate(kOtherSerial, kNow + 5000)), StatusCode::kUnauthenticated);
  EXPECT_EQ(Check(Certificate(kSerial, kNow, {Role::kNode, "n77", "lab"})), StatusCode::kOk);
  EXPECT_EQ(Check(Certificate(kSerial, kNow, {Role::kAdmin, "n7", "lab"})), StatusCode::kOk);
  EXPECT_NE(LoadRevocations(path_)->Find(kNode), nullptr);
}

TEST_F(RevocationTest, RefusesTheOldCertificatesOfAReadmittedNodeOnly) {
  ASSERT_TRUE(Revoke(path_, {.identity = IdentityUri(kNode), .revoked_ms = kNow}).ok());
  EXPECT_EQ(Readmit(path_, kNode, kNow + 900).code(), StatusCode::kUnavailable);
  ASSERT_EQ(Readmit(path_, kNode, kNow + 1000), OkStatus());
  EXPECT_EQ(LoadRevocations(path_)->Find(kNode), nullptr);
  EXPECT_EQ(Check(Certificate(kSerial, kNow)), StatusCode::kUnauthenticated);
  EXPECT_EQ(Check(Certificate(kSerial, kNow + 1000)), StatusCode::kOk);
  // And it can be revoked once more.
  ASSERT_TRUE(Revoke(path_, {.identity = IdentityUri(kNode), .revoked_ms = kNow + 2000}).ok());
  EXPECT_EQ(Check(Certificate(kSerial, kNow + 1000)), StatusCode::kUnauthenticated);
  EXPECT_EQ(LoadRevocations(path_)->entries().size(), 1U);
}

TEST_F(RevocationTest, ReadmittingWhatIsNotRevokedChangesNothing) {
  EXPECT_EQ(Readmit(path_, kNode, kNow), OkStatus());
  EXPECT_EQ(StampOf(path_), FileStamp());
}

TEST_F(RevocationTest, KeepsTheFirstOfTwoEqualEntries) {
  const Revocation first{.serial = kSerial, .revoked_ms = kNow, .reason = "first"};
  ASSERT_TRUE(Revoke(path_, first).ok());
  ASSERT_TRUE(Revoke(path_, {.serial = kSerial, .revoked_ms = kNow + 5, .reason = "second"}).ok());
  EXPECT_EQ(LoadRevocations(path_)->entries(), std::vector{first});
}

TEST_F(RevocationTest, TakesNoEntryThatRefusesNothing) {
  EXPECT_FALSE(Revoke(path_, {.revoked_ms = kNow}).ok());
  EXPECT_FALSE(Revoke(path_, {.serial = "00ff", .revoked_ms = kNow}).ok());
  EXPECT_FALSE(Revoke(path_, {.identity = "n7", .revoked_ms = kNow}).ok());
  EXPECT_FALSE(Revoke(path_, {.serial = kSerial}).ok());
}

TEST_F(RevocationTest, NamesTheEntryThatIsNone) {
  for (const char* entry :
       {"3", "{}", R"({"serial": "00", "revoked_ms": 1})", R"({"identity": 7, "revoked_ms": 1})",
        R"({"identity": "muster://lab/node/n7"})",
        R"({"identity": "muster://lab/node/n7", "revoked_ms": "soon"})"}) {
    const std::string text = std::string(R"({"revoked": [)") + entry + "]}";
    ASSERT_TRUE(WriteFileAtomically(path_, text).ok());
    const auto list = LoadRevocations(path_);
    EXPECT_EQ(list.status().code(), StatusCode::kDataLoss) << entry;
    EXPECT_NE(list.status().message().find("revoked[0]"), std::string::npos);
    // Nothing is written over what cannot be read.
    EXPECT_FALSE(Revoke(path_, {.serial = kSerial, .revoked_ms = kNow}).ok());
    EXPECT_EQ(*ReadFile(path_), text);
  }
}

TEST_F(RevocationTest, IsSeenByAReaderThatFollowsTheFile) {
  RevocationFile file(path_);
  EXPECT_FALSE(*file.Refresh());
  ASSERT_TRUE(Revoke(path_, {.serial = kSerial, .revoked_ms = kNow}).ok());
  EXPECT_TRUE(*file.Refresh());
  EXPECT_EQ(file.list().Check(Certificate(kSerial, kNow)).code(), StatusCode::kUnauthenticated);
  EXPECT_FALSE(*file.Refresh());
}

TEST_F(RevocationTest, StaysInForceWhileItsFileCannotBeRead) {
  RevocationFile file(path_);
  ASSERT_TRUE(Revoke(path_, {.serial = kSerial, .revoked_ms = kNow}).ok());
  ASSERT_TRUE(*file.Refresh());
  const std::string good = *ReadFile(path_);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(WriteFileAtomically(path_, "{").ok());
    EXPECT_EQ(file.Refresh().status().code(), StatusCode::kDataLoss);
    EXPECT_FALSE(file.list().Check(Certificate(kSerial, kNow)).ok());
  }
  ASSERT_TRUE(WriteFileAtomically(path_, good).ok());
  EXPECT_TRUE(*file.Refresh());
  // Others could make themselves welcome again.
  ASSERT_EQ(::chmod(path_.c_str(), 0666), 0);
  ASSERT_TRUE(LoadRevocations(path_).status().code() == StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace muster
