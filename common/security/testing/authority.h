// An authority, and times to ask it at. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/security/certificate_authority.h"

namespace muster {

inline constexpr std::int64_t kNowForTest = 1'800'000'000'000;
inline constexpr std::int64_t kMinuteMs = 60'000;
inline constexpr std::int64_t kHourMs = 60 * kMinuteMs;
inline constexpr std::int64_t kDayMs = 24 * kHourMs;

class AuthorityForTest : public ::testing::Test {
 protected:
  // For cluster "lab"; `name` distinguishes several.
  CertificateAuthority MakeAuthority(const std::string& name = "security") {
    return *CertificateAuthority::Create(temp_ / name, "lab", kNowForTest);
  }
  static Identity Node(const std::string& name) { return {Role::kNode, name, "lab"}; }
  static IssuedCertificate IssueNode(const CertificateAuthority& authority,
                                     const std::string& name = "n7") {
    return *authority.Issue(Node(name), DefaultLifetime(Role::kNode), kNowForTest);
  }

  TempDirForTest temp_;
};

}  // namespace muster
