#include "coordinator/service/doorkeeper.h"

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

TEST(Doorkeeper, LetsNobodyStayForLongWhoseCertificateHasExpired) {
  SetClock clock;
  const Doorkeeper doorkeeper("token", "lab", clock);
  const CertificateInfo certificate{.identity = {Role::kNode, "n7", "lab"},
                                    .serial = std::string(32, 'a'),
                                    .not_after_ms = kNotAfter};
  clock.unix_ms = kNotAfter + kSkewMs - 1;
  EXPECT_EQ(doorkeeper.CheckMayStay(certificate), OkStatus());
  clock.unix_ms = kNotAfter + kSkewMs;
  const Status expired = doorkeeper.CheckMayStay(certificate);
  EXPECT_EQ(expired.code(), StatusCode::kUnauthenticated);
  EXPECT_NE(expired.message().find("node/n7"), std::string::npos) << expired.message();
}

TEST(Doorkeeper, LetsNobodyStayWhoIsRevoked) {
  SetClock clock;
  Doorkeeper doorkeeper("token", "lab", clock);
  const CertificateInfo certificate{.identity = {Role::kNode, "n7", "lab"},
                                    .serial = std::string(32, 'a'),
                                    .not_after_ms = kNotAfter};
  CertificateInfo other = certificate;
  other.serial = std::string(32, 'b');
  doorkeeper.SetRevocations(RevocationList({{.serial = certificate.serial, .revoked_ms = 1}}));
  EXPECT_EQ(doorkeeper.CheckMayStay(certificate).code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(doorkeeper.CheckMayStay(other), OkStatus());
}

}  // namespace
}  // namespace muster
