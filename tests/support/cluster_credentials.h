// A certificate authority in a directory of its own, and credentials of it of every kind, good and
// bad. For tests; one thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/testing/temp_dir.h"
#include "common/security/certificate_authority.h"
#include "common/security/credentials.h"

namespace muster {

class ClusterCredentials {
 public:
  // In a directory of its own.
  ClusterCredentials() : ClusterCredentials("") {}
  // In a cluster's, where `muster init` would make it.
  explicit ClusterCredentials(std::string dir) : dir_(dir.empty() ? own_dir_.path() : dir) {
    // Old enough to have issued what has expired meanwhile.
    auto authority = CertificateAuthority::Create(security_dir(), cluster_,
                                                  SystemClock().UnixMillis() - kDayMillis);
    EXPECT_TRUE(authority.ok()) << authority.status().ToString();
    authority_ = std::make_unique<CertificateAuthority>(*std::move(authority));
  }

  const CertificateAuthority& authority() const { return *authority_; }
  std::string security_dir() const { return dir_ + "/security"; }
  const std::string& cluster() const { return cluster_; }

  // A new certificate in a directory of that name; one that is there is replaced. `age` is how long
  // ago it was issued.
  std::string Make(Role role, const std::string& name, Duration lifetime = std::chrono::hours(1),
                   Duration age = Duration::zero()) {
    const std::string dir = dir_ + "/" + std::string(RoleWord(role)) + "-" + name;
    Write(dir, role, name, lifetime, age);
    return dir;
  }
  std::string MakeExpired(Role role, const std::string& name) {
    return Make(role, name, std::chrono::minutes(1), std::chrono::hours(2));
  }
  void Write(const std::string& dir, Role role, const std::string& name,
             Duration lifetime = std::chrono::hours(1), Duration age = Duration::zero()) {
    const std::int64_t issued_ms =
        SystemClock().UnixMillis() -
        std::chrono::duration_cast<std::chrono::milliseconds>(age).count();
    const auto issued = authority_->Issue({role, name, cluster_}, lifetime, issued_ms);
    ASSERT_TRUE(issued.ok()) << issued.status().ToString();
    const Status written = WriteCredentials(
        dir, {authority_->certificate_pem(), issued->certificate_pem, issued->key_pem});
    ASSERT_TRUE(written.ok()) << written.ToString();
  }

 private:
  static constexpr std::int64_t kDayMillis = 24 * 3600 * 1000;
  const TempDirForTest own_dir_;
  const std::string dir_;
  const std::string cluster_ = "lab";
  std::unique_ptr<CertificateAuthority> authority_;
};

}  // namespace muster
