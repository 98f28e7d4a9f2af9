#include "common/telemetry/cookies.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using namespace std::chrono_literals;

TEST(Cookies, AreForThisHostOverTlsAndOutOfReachOfScripts) {
  EXPECT_EQ(MakeCookie("__Host-a", "1", 60s),
            "__Host-a=1; Path=/; Max-Age=60; Secure; HttpOnly; SameSite=Lax");
}

TEST(Cookies, AreFoundByTheirWholeName) {
  EXPECT_EQ(CookieValue("a=1; __Host-b=2=3; c", "__Host-b"), "2=3");
  EXPECT_EQ(CookieValue("a=1;b=2", "b"), "2");
  for (const char* none : {"", "b", "bb=1", "a=b=1", ";;", " b =1"})
    EXPECT_EQ(CookieValue(none, "b"), "") << none;
  EXPECT_EQ(CookieValue("b=1; b=2", "b"), "") << "it would be open which one counts";
}

}  // namespace
}  // namespace muster
