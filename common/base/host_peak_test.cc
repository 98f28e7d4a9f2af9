#include "common/base/host_peak.h"

#include <gtest/gtest.h>

#include <memory>

namespace muster {
namespace {

constexpr std::int64_t kMegabyte = 1 << 20;

void TouchAndFree(std::int64_t bytes) {
  const std::unique_ptr<volatile char[]> memory(new volatile char[bytes]);
  for (std::int64_t at = 0; at < bytes; at += 4096) memory[at] = 1;
}

TEST(HostPeak, CountsWhatWasFreedAgain) {
  const HostPeak stage;
  ASSERT_GT(stage.begin_bytes(), 0);
  TouchAndFree(64 * kMegabyte);
  EXPECT_GE(stage.bytes(), stage.begin_bytes() + 60 * kMegabyte);
}

TEST(HostPeak, NextStageForgetsTheOneBefore) {
  TouchAndFree(64 * kMegabyte);
  const HostPeak next;
  if (!next.of_stage()) GTEST_SKIP() << "the kernel does not let this process set the mark back";
  EXPECT_LT(next.bytes(), next.begin_bytes() + 32 * kMegabyte);
}

}  // namespace
}  // namespace muster
