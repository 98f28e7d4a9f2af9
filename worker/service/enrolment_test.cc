#include "worker/service/enrolment.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/security/join_token.h"
#include "tests/support/cluster_credentials.h"
#include "tests/support/eventually.h"
#include "worker/service/server.h"

namespace muster::worker {
namespace {

using namespace std::chrono_literals;

// As a worker that dies when it has written the record of the next certificate of its node n1; that
// one's serial.
std::string LeaveHalfReplaced(ClusterCredentials& ours, const std::string& dir) {
  const auto now = LoadCredentials(dir);
  ours.Write(dir, Role::kNode, "n1");
  const auto next = LoadCredentials(dir);
  EXPECT_TRUE(now.ok() && next.ok());
  EXPECT_TRUE(WriteCredentials(dir, {now->ca_pem, now->cert_pem, now->key_pem}).ok());
  const nlohmann::json record = {
      {"ca", next->ca_pem}, {"cert", next->cert_pem}, {"key", next->key_pem}};
  EXPECT_TRUE(WriteFileAtomically(dir + "/replacement.json", record.dump(), 0600).ok());
  return next->serial;
}

TEST(Renewal, IsSpreadOverTheLastTenthBeforeItIsDue) {
  EXPECT_EQ(RenewAtMs(1000, 2000, 0), 1900);
  EXPECT_EQ(RenewAtMs(1000, 2000, 0.5), 1950);
  EXPECT_EQ(RenewAtMs(1000, 2000, 1), 2000);
}

TEST(InvitationOf, TakesTheTextOrAFileWithIt) {
  const TempDirForTest dir;
  const Invitation invitation{std::string(kJoinTokenPrefix) + "abc", "10.0.0.1:1", "10.0.0.1:2"};
  EXPECT_EQ(*InvitationOf(InvitationText(invitation)), invitation);
  ASSERT_TRUE(WriteFileAtomically(dir / "token", InvitationText(invitation) + "\n").ok());
  EXPECT_EQ(*InvitationOf(dir / "token"), invitation);
  EXPECT_EQ(InvitationOf(dir / "nothing").status().code(), StatusCode::kNotFound);
}

TEST(Joining, WithATokenThatIsCutFailsWithoutARequest) {
  const Status status = JoinUntilIn({.invitation = std::string(kJoinTokenPrefix) + "abc join=x",
                                     .node = "n1",
                                     .credentials_dir = "/nowhere"});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
}

TEST(Joining, IsNotDoneTwice) {
  ClusterCredentials ours;
  const std::string dir = ours.Make(Role::kNode, "n1");
  EXPECT_TRUE(JoinUntilIn({.invitation = "used up", .node = "n1", .credentials_dir = dir}).ok())
      << "the file that held the token was removed since";
  // Those of another node, and expired ones, are no use.
  for (const std::string& other :
       {ours.Make(Role::kNode, "n2"), ours.MakeExpired(Role::kNode, "n1")})
    EXPECT_FALSE(
        JoinUntilIn({.invitation = "used up", .node = "n1", .credentials_dir = other}).ok());
}

TEST(Joining, LeavesNothingOfARenewalThatACrashHasCutShort) {
  ClusterCredentials ours;
  const std::string dir = ours.Make(Role::kNode, "n1");
  const std::string serial = LeaveHalfReplaced(ours, dir);
  EXPECT_TRUE(JoinUntilIn({.invitation = "used up", .node = "n1", .credentials_dir = dir}).ok());
  EXPECT_FALSE(std::filesystem::exists(dir + "/replacement.json"));
  EXPECT_EQ(ReadCertificate(*ReadFile(dir + "/cert.pem"))->serial, serial);
}

TEST(WorkerServer, LeavesNothingOfARenewalThatACrashHasCutShort) {
  ClusterCredentials ours;
  const TempDirForTest cluster;
  const std::string dir = ours.Make(Role::kNode, "n1");
  const std::string serial = LeaveHalfReplaced(ours, dir);
  const auto server = WorkerServer::Start(
      {.cluster_dir = cluster.path(), .node = "n1", .slots = 1, .tls_dir = dir});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_FALSE(std::filesystem::exists(dir + "/replacement.json"));
  EXPECT_EQ(ReadCertificate(*ReadFile(dir + "/cert.pem"))->serial, serial);
}

TEST(Renewal, ThatFailsIsCountedAndTriedAgain) {
  ClusterCredentials ours;
  EventLoop loop;
  int asked = 0;
  CertificateRenewal renewal(loop,
                             {.credentials_dir = ours.Make(Role::kNode, "n1", 1h, 50min),
                              .find_coordinator = [&asked]() -> Result<std::string> {
                                ++asked;
                                return Unavailable("nobody is there");
                              }},
                             0.5);
  Timer limit(loop), poll(loop);
  limit.Start(10s, [&] { loop.Stop(); });
  std::function<void()> look = [&] {
    if (renewal.failures() >= 2) return loop.Stop();
    poll.Start(10ms, look);
  };
  look();
  renewal.Start();
  loop.Run();
  EXPECT_GE(renewal.failures(), 2u);
  EXPECT_GE(asked, 2);
  EXPECT_EQ(renewal.renewals(), 0u);
  EXPECT_GT(renewal.not_after_ms(), SystemClock().UnixMillis());
}

}  // namespace
}  // namespace muster::worker
