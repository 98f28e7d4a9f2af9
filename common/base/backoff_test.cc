#include "common/base/backoff.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::seconds;

TEST(Backoff, DoublesFromTheFirstPauseToTheLongest) {
  Backoff pauses(seconds(1), seconds(300));
  for (const int expected : {1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300})
    EXPECT_EQ(pauses.Next(), seconds(expected));
  pauses.Reset();
  EXPECT_EQ(pauses.Next(), seconds(1));
}

}  // namespace
}  // namespace muster
