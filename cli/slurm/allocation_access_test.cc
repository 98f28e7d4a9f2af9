#include "cli/slurm/allocation_access.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/security/certificate_authority.h"
#include "common/security/credentials.h"
#include "common/slurm/testing/fake_slurm.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

class AllocationAccessTest : public testing::Test {
 protected:
  void Lead(int run, const std::string& grpc) const {
    ASSERT_TRUE(WriteFileAtomically(state_ / "leader.json",
                                    R"({"run":)" + std::to_string(run) +
                                        R"(,"epoch":1,"node":"n1","grpc":")" + grpc + "\"}")
                    .ok());
  }
  void MakeAuthority(int run) const {
    ASSERT_TRUE(CertificateAuthority::Create(state_ / ("security-" + std::to_string(run)),
                                             "lab-42-" + std::to_string(run),
                                             SystemClock().UnixMillis())
                    .ok());
  }

  TempDirForTest state_;
};

TEST_F(AllocationAccessTest, OpensWithACertificateThatGoesWithIt) {
  Lead(1, "10.0.0.3:7");
  MakeAuthority(1);
  std::string dir;
  {
    AllocationAccess access(state_.path(), "ann");
    const auto remote = access.Find();
    ASSERT_TRUE(remote.ok()) << remote.status().ToString();
    EXPECT_EQ(remote->address, "10.0.0.3:7");
    dir = remote->credentials_dir;
    const auto credentials = LoadCredentials(dir);
    ASSERT_TRUE(credentials.ok()) << credentials.status().ToString();
    EXPECT_EQ(credentials->identity, (Identity{Role::kAdmin, "ann", "lab-42-1"}));
    const std::int64_t left_ms = credentials->not_after_ms - SystemClock().UnixMillis();
    EXPECT_LE(left_ms, 3'600'000);
    EXPECT_GT(left_ms, 3'500'000);
    EXPECT_EQ(fs::status(fs::path(dir).parent_path()).permissions(), fs::perms::owner_all);
    EXPECT_EQ(access.Find()->credentials_dir, dir);
    EXPECT_EQ(LoadCredentials(dir)->serial, credentials->serial) << "one certificate is enough";
  }
  EXPECT_FALSE(fs::exists(fs::path(dir).parent_path()));
}

TEST_F(AllocationAccessTest, FollowsATakeoverAndARequeue) {
  AllocationAccess access(state_.path(), "a user with blanks");
  EXPECT_EQ(access.Find().status().code(), StatusCode::kUnavailable) << "no node leads yet";
  Lead(0, "10.0.0.1:7");
  MakeAuthority(0);
  EXPECT_EQ(access.Find()->address, "10.0.0.1:7");
  Lead(0, "10.0.0.2:8");
  const auto taken_over = access.Find();
  EXPECT_EQ(taken_over->address, "10.0.0.2:8");
  const auto first = LoadCredentials(taken_over->credentials_dir);
  EXPECT_EQ(first->identity.name, "user") << "what may stand in a certificate";

  Lead(1, "10.0.0.1:9");
  const auto between = access.Find();
  EXPECT_EQ(between.status().code(), StatusCode::kUnavailable) << "no authority yet";
  EXPECT_NE(between.status().message().find("security-1"), std::string::npos);
  MakeAuthority(1);
  EXPECT_EQ(LoadCredentials(access.Find()->credentials_dir)->identity.cluster, "lab-42-1");
}

TEST_F(AllocationAccessTest, IsFoundThroughSlurmOrByItsDirectory) {
  Lead(0, "10.0.0.1:7");
  MakeAuthority(0);
  slurm::FakeSlurm slurm;
  slurm.Install("squeue", "printf " + slurm::ListedLine("42", "by-hand", "RUNNING", "(null)"));
  const auto unknown = CoordinatorOfSlurmJob(slurm.Commands(), "ann", "42")();
  EXPECT_EQ(unknown.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(unknown.status().message().find("slurm-42"), std::string::npos);
  EXPECT_EQ(CoordinatorOfSlurmJob(slurm.Commands(), "ann", state_.path())()->address, "10.0.0.1:7");
}

}  // namespace
}  // namespace muster
