#include "trainer/hub/fetch_display.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class FetchDisplayTest : public testing::Test {
 protected:
  FetchDisplay Make(bool is_terminal) {
    return FetchDisplay(
        is_terminal, [this](const std::string& text) { written_ += text; }, At(0));
  }
  static TimePoint At(double seconds) {
    return TimePoint(std::chrono::hours(9)) + FromSeconds(seconds);
  }
  std::string Written() { return std::exchange(written_, {}); }

  std::string written_;
};

TEST_F(FetchDisplayTest, DrawsABarOverItselfOnATerminal) {
  FetchDisplay display = Make(true);
  display.Plan(3, 2'000'000'000, At(0));
  display.Bytes(1'000'000'000, At(10));
  EXPECT_THAT(Written(), HasSubstr("\r\x1b[K[############            ] 1 GB of 2 GB, 0 of 3 files, "
                                   "100 MB/s"));
  display.Bytes(1, At(10.1));
  EXPECT_EQ(Written(), "") << "five times a second at most";
  display.Note("trying again");
  EXPECT_EQ(Written(), "\r\x1b[Ktrying again\n");
}

TEST_F(FetchDisplayTest, WritesALinePerFileElsewhere) {
  FetchDisplay display = Make(false);
  display.Plan(2, 0, At(0));
  Written();
  display.Bytes(1000, At(1));
  EXPECT_EQ(Written(), "");
  display.File("config.json", At(2));
  EXPECT_EQ(Written(), "config.json (1 of 2 files)\n");
  display.Bytes(1000, At(20));
  EXPECT_EQ(Written(), "2 kB, 1 of 2 files, 100 B/s\n");
  display.End();
  EXPECT_EQ(Written(), "");
}

}  // namespace
}  // namespace muster
