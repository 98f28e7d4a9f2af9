#include "coordinator/service/certificate_rotator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "common/base/clock.h"
#include "common/security/issued_register.h"
#include "tests/support/cluster_credentials.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

// A coordinator whose certificate is due, in a directory that cannot be locked: also for root.
class CertificateRotatorTest : public ::testing::Test {
 protected:
  CertificateRotatorTest() {
    std::filesystem::remove(dir_ + "/.lock");
    EXPECT_EQ(::symlink("/nowhere/lock", (dir_ + "/.lock").c_str()), 0);
  }
  void MakeDue() {
    const std::string due = ours_.Make(Role::kCoordinator, "due", 1h, 50min);
    for (const char* file : {"/cert.pem", "/key.pem"})
      std::filesystem::rename(due + file, dir_ + file);
  }
  std::size_t Issued() const { return ReadIssued(ours_.security_dir() + "/issued.jsonl")->size(); }

  ClusterCredentials ours_;
  const std::string dir_ = ours_.Make(Role::kCoordinator, "coordinator");
  Authenticator authenticator_{"token", ours_.cluster(), SystemClock()};
  EventLoop loop_;
};

TEST_F(CertificateRotatorTest, SignsNothingThatItCannotWriteAndTriesLessAndLessOften) {
  int looks = 0;
  CertificateRotatorOptions options{dir_, {}, ours_.security_dir()};
  options.interval = 10ms;
  options.on_look = [&] {
    if (++looks == 20) loop_.Stop();
  };
  CertificateRotator rotator(loop_, authenticator_, options);
  ASSERT_TRUE(rotator.Start().ok());
  MakeDue();
  const std::size_t before = Issued();
  Timer limit(loop_);
  limit.Start(10s, [this] { loop_.Stop(); });
  loop_.Run();
  EXPECT_EQ(looks, 20);
  EXPECT_GE(rotator.failed_renewals(), 1u);
  EXPECT_LE(rotator.failed_renewals(), 4u);  // the fourth one after 1 + 2 + 4 s
  EXPECT_EQ(Issued(), before);
}

}  // namespace
}  // namespace muster
