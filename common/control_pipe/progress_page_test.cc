#include "common/control_pipe/progress_page.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "common/base/clock.h"

namespace muster {
namespace {

TEST(ProgressPage, AReaderSeesWhatWasPublishedAndNotWhatWasOnlySet) {
  auto fd = CreateProgressPage();
  ASSERT_TRUE(fd.ok());
  auto writer = ProgressWriter::Map(fd->get());
  auto reader = ProgressReader::Map(fd->get());
  ASSERT_TRUE(writer.ok() && reader.ok());
  ProgressValues values;
  ASSERT_TRUE((*reader)->Read(&values));
  EXPECT_EQ(values.step, 0);
  (*writer)->values().step = 7;
  (*writer)->values().phase = TrainPhase::kBackward;
  ASSERT_TRUE((*reader)->Read(&values));
  EXPECT_EQ(values.step, 0);
  (*writer)->Publish();
  ASSERT_TRUE((*reader)->Read(&values));
  EXPECT_EQ(values.step, 7);
  EXPECT_EQ(TrainPhaseName(values.phase), "backward");
}

TEST(ProgressPage, OutlivesItsWriter) {
  auto fd = CreateProgressPage();
  auto reader = ProgressReader::Map(fd->get());
  {
    auto writer = ProgressWriter::Map(fd->get());
    (*writer)->values().step = 9;
    (*writer)->Publish();
  }
  fd->reset();
  ProgressValues values;
  ASSERT_TRUE((*reader)->Read(&values));
  EXPECT_EQ(values.step, 9);
}

TEST(ProgressPage, ASnapshotIsNeverTorn) {
  auto fd = CreateProgressPage();
  auto writer = ProgressWriter::Map(fd->get());
  auto reader = ProgressReader::Map(fd->get());
  std::atomic<bool> stop{false};
  std::thread rank([&] {
    ProgressValues& values = (*writer)->values();
    while (!stop) {
      // First and last fields always agree in what is published.
      ++values.generation;
      values.step = values.generation;
      values.step_seconds_buckets.back() = static_cast<std::uint64_t>(values.generation);
      (*writer)->Publish();
      std::this_thread::yield();
    }
  });
  int seen = 0;
  std::int64_t newest = 0;
  const Deadline deadline = Deadline::After(std::chrono::seconds(20));
  while (seen < 2000 && !deadline.Expired()) {
    ProgressValues values;
    if (!(*reader)->Read(&values)) continue;
    ++seen;
    ASSERT_EQ(values.step, values.generation);
    ASSERT_EQ(values.step_seconds_buckets.back(), static_cast<std::uint64_t>(values.generation));
    ASSERT_GE(values.generation, newest);
    newest = values.generation;
  }
  stop = true;
  rank.join();
  EXPECT_EQ(seen, 2000);
}

TEST(ProgressPage, AWriterThatDiedInAStoreMakesReadFail) {
  auto fd = CreateProgressPage();
  auto reader = ProgressReader::Map(fd->get());
  const std::uint64_t odd = 1;
  ASSERT_EQ(::pwrite(fd->get(), &odd, sizeof odd, offsetof(ProgressPageLayout, sequence)), 8);
  ProgressValues values;
  EXPECT_FALSE((*reader)->Read(&values));
}

TEST(ProgressPage, AnotherLayoutIsRefused) {
  auto fd = CreateProgressPage();
  const std::uint32_t version = kProgressPageVersion + 1;
  ASSERT_EQ(::pwrite(fd->get(), &version, sizeof version, offsetof(ProgressPageLayout, version)),
            4);
  EXPECT_EQ(ProgressReader::Map(fd->get()).status().code(), StatusCode::kFailedPrecondition);
  auto small = CreateProgressPage();
  ASSERT_EQ(::ftruncate(small->get(), 10), 0);
  EXPECT_EQ(ProgressReader::Map(small->get()).status().code(), StatusCode::kDataLoss);
}

TEST(ProgressPage, EveryPhaseHasAName) {
  for (int phase = 0; phase < kTrainPhaseCount; ++phase)
    EXPECT_NE(TrainPhaseName(static_cast<TrainPhase>(phase)), "unknown");
  EXPECT_EQ(TrainPhaseName(static_cast<TrainPhase>(kTrainPhaseCount)), "unknown");
}

}  // namespace
}  // namespace muster
