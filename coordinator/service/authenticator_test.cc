#include "coordinator/service/authenticator.h"

#include <gtest/gtest.h>

#include <chrono>

namespace muster {
namespace {

constexpr std::int64_t kNotAfter = 1'800'000'000'000;
constexpr std::int64_t kSkewMs =
    std::chrono::duration_cast<std::chrono::milliseconds>(kClockSkew).count();

class SetClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(std::chrono::milliseconds(unix_ms)); }
  std::int64_t UnixMillis() const override { return unix_ms; }

  std::int64_t unix_ms = 0;
};

TEST(Authenticator, EndsCallsSoonAfterTheirCertificateHasExpired) {
  SetClock clock;
  const Authenticator authenticator("token", "lab", clock);
  const CertificateInfo certificate{.identity = {Role::kNode, "n7", "lab"},
                                    .serial = std::string(32, 'a'),
                                    .not_after_ms = kNotAfter};
  clock.unix_ms = kNotAfter + kSkewMs - 1;
  EXPECT_EQ(authenticator.CheckMayStay(certificate), OkStatus());
  clock.unix_ms = kNotAfter + kSkewMs;
  const Status expired = authenticator.CheckMayStay(certificate);
  EXPECT_EQ(expired.code(), StatusCode::kUnauthenticated);
  EXPECT_NE(expired.message().find("node/n7"), std::string::npos) << expired.message();
}

TEST(Authenticator, EndsCallsWhoseCertificateIsRevoked) {
  SetClock clock;
  Authenticator authenticator("token", "lab", clock);
  const CertificateInfo certificate{.identity = {Role::kNode, "n7", "lab"},
                                    .serial = std::string(32, 'a'),
                                    .not_after_ms = kNotAfter};
  CertificateInfo other = certificate;
  other.serial = std::string(32, 'b');
  authenticator.SetRevocations(RevocationList({{.serial = certificate.serial, .revoked_ms = 1}}));
  EXPECT_EQ(authenticator.CheckMayStay(certificate).code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(authenticator.CheckMayStay(other), OkStatus());
}

}  // namespace
}  // namespace muster
