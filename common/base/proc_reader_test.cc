#include "common/base/proc_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace muster {
namespace {

using testing::UnorderedElementsAre;

TEST(ProcReader, ParsesNamesWithSpacesAndParentheses) {
  const auto info = ParseProcessStat(
      "42 (a) b (c) S 7 42 42 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 1 0 987654 1 2 3");
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(
      *info,
      (ProcessInfo{.pid = 42, .parent = 7, .state = 'S', .start_time = 987654, .cpu_ticks = 42}));
  EXPECT_GT(CpuSeconds(*info), 0);
}

TEST(ProcReader, RefusesALineThatIsCutShort) {
  EXPECT_EQ(ParseProcessStat("42 (a) S 7").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ParseProcessStat("").status().code(), StatusCode::kDataLoss);
}

TEST(ProcReader, FindsThisProcessAndNotAGoneOne) {
  const auto self = ReadProcess(::getpid());
  ASSERT_TRUE(self.ok());
  EXPECT_EQ(self->pid, ::getpid());
  EXPECT_EQ(self->parent, ::getppid());
  EXPECT_GT(self->start_time, 0u);
  // Above the largest pid that Linux gives.
  EXPECT_EQ(ReadProcess(1 << 23).status().code(), StatusCode::kNotFound);
}

TEST(ProcReader, DescendantsAreFoundAtAnyDepthWithoutZombies) {
  const std::vector<ProcessInfo> table = {
      {1, 0, 'S', 1},   {10, 1, 'S', 2},  {11, 10, 'S', 3},
      {12, 11, 'Z', 4}, {13, 12, 'D', 5}, {20, 1, 'R', 6},
  };
  EXPECT_THAT(LivingDescendants(table, 10),
              UnorderedElementsAre(ProcessId{11, 3}, ProcessId{13, 5}));
  EXPECT_THAT(LivingDescendants(table, 20), UnorderedElementsAre());
}

TEST(ProcReader, BootIdIsStable) {
  EXPECT_EQ(BootId(), BootId());
  EXPECT_EQ(BootId().size(), 36u);
}

}  // namespace
}  // namespace muster
