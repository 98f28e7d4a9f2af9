#include "common/control_pipe/progress_page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "common/base/clock.h"
#include "common/base/version_table.h"

namespace muster {
namespace {

TEST(ProgressPage, CannotBeMadeSmallerBelowAReader) {
  const auto page = CreateProgressPage();
  ASSERT_TRUE(page.ok()) << page.status().ToString();
  EXPECT_TRUE(IsSealed(page->get()));
  EXPECT_NE(::ftruncate(page->get(), 0), 0);
  const UniqueFd open_ended(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_FALSE(IsSealed(open_ended.get()));
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(IsSealed(file.get()));
}

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
  const std::uint32_t version = kProgressPages.max + 1;
  ASSERT_EQ(::pwrite(fd->get(), &version, sizeof version, offsetof(ProgressPageLayout, version)),
            4);
  EXPECT_EQ(ProgressReader::Map(fd->get()).status().code(), StatusCode::kFailedPrecondition);
  const UniqueFd small(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(small.get(), 10), 0);
  EXPECT_EQ(ProgressReader::Map(small.get()).status().code(), StatusCode::kDataLoss);
}

class CollectiveCells : public ::testing::Test {
 protected:
  void SetUp() override {
    auto fd = CreateProgressPage();
    ASSERT_TRUE(fd.ok());
    writer_ = *ProgressWriter::Map(fd->get());
    reader_ = *ProgressReader::Map(fd->get());
  }
  std::vector<std::string> Groups() const {
    std::vector<std::string> names;
    for (const CollectiveCounts& counts : reader_->ReadCollectives()) names.push_back(counts.group);
    return names;
  }

  std::shared_ptr<ProgressWriter> writer_;
  std::unique_ptr<ProgressReader> reader_;
};

TEST_F(CollectiveCells, ShowEveryGroupsCounts) {
  const auto world = ClaimCell(writer_, "world");
  const auto shard = ClaimCell(writer_, "shard");
  world->enqueued = 5;
  world->started = 4;
  world->completed = 3;
  world->bytes = 2048;
  world->wait_nanoseconds = 70;
  shard->enqueued = 1;
  shard->wait_nanoseconds = 8;
  EXPECT_EQ(reader_->ReadCollectives(), (std::vector<CollectiveCounts>{{"world", 5, 4, 3, 2048, 70},
                                                                       {"shard", 1, 0, 0, 0, 8}}));
  EXPECT_EQ(writer_->wait_nanoseconds(), 78u);
}

TEST_F(CollectiveCells, AreGivenBackAndBeginAtZero) {
  auto world = ClaimCell(writer_, "world");
  world->enqueued = 5;
  world->wait_nanoseconds = 5;
  world.reset();
  EXPECT_EQ(Groups(), std::vector<std::string>());
  EXPECT_EQ(writer_->wait_nanoseconds(), 0u);
  world = ClaimCell(writer_, "world");
  EXPECT_EQ(reader_->ReadCollectives(), (std::vector<CollectiveCounts>{{.group = "world"}}));
}

// What still counts in the cell of a generation that is over must not show in the next one's.
TEST_F(CollectiveCells, ARetiredCellIsNotReusedUntilItIsGivenBack) {
  auto old = ClaimCell(writer_, "world");
  RetireCell(*old);
  const auto next = ClaimCell(writer_, "world");
  old->enqueued = 100;
  next->enqueued = 1;
  EXPECT_EQ(reader_->ReadCollectives(),
            (std::vector<CollectiveCounts>{{.group = "world", .enqueued = 1}}));
  old.reset();
  EXPECT_EQ(Groups(), std::vector<std::string>{"world"});
}

TEST_F(CollectiveCells, GroupsOfOneNameAreDistinguishedAndLongNamesAreCut) {
  const std::string name(40, 'n');
  const auto first = ClaimCell(writer_, name);
  const auto second = ClaimCell(writer_, name);
  const auto third = ClaimCell(writer_, "pair");
  const auto fourth = ClaimCell(writer_, "pair");
  EXPECT_EQ(Groups(), (std::vector<std::string>{std::string(23, 'n'), std::string(21, 'n') + "#2",
                                                "pair", "pair#2"}));
}

TEST_F(CollectiveCells, OnesTooManyCountWithoutThePage) {
  std::vector<std::shared_ptr<CollectiveCell>> cells;
  for (std::size_t i = 0; i <= kMaxCollectiveCells; ++i) {
    cells.push_back(ClaimCell(writer_, "group" + std::to_string(i)));
    cells.back()->enqueued = 7;
  }
  EXPECT_EQ(Groups().size(), kMaxCollectiveCells);
  EXPECT_EQ(cells.back()->enqueued, 7u);
  EXPECT_EQ(ClaimCell(nullptr, "world")->enqueued, 0u);
}

TEST_F(CollectiveCells, KeepThePageAsLongAsTheyAreHeld) {
  const auto cell = ClaimCell(writer_, "world");
  writer_.reset();
  cell->completed = 9;
  EXPECT_EQ(reader_->ReadCollectives(),
            (std::vector<CollectiveCounts>{{.group = "world", .completed = 9}}));
}

TEST(ProgressPage, EveryPhaseHasAName) {
  for (int phase = 0; phase < kTrainPhaseCount; ++phase)
    EXPECT_NE(TrainPhaseName(static_cast<TrainPhase>(phase)), "unknown");
  EXPECT_EQ(TrainPhaseName(static_cast<TrainPhase>(kTrainPhaseCount)), "unknown");
}

}  // namespace
}  // namespace muster
