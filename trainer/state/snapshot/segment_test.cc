#include "trainer/state/snapshot/segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>

#include "common/base/testing/temp_dir.h"
#include "tests/support/eventually.h"
#include "trainer/state/checkpoint/shard_file.h"
#include "trainer/state/checkpoint/testing/checkpoint_testing.h"
#include "trainer/state/snapshot/testing/snapshot_testing.h"

namespace muster {
namespace {

using testing::CountWrong;
using testing::CursorOf;
using ::testing::ElementsAre;
using testing::FillWithStep;
using ::testing::IsEmpty;
using testing::MakeSegment;
using testing::SmallSpec;
using testing::TrainTo;

UniqueFd Duplicate(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

StateId StateOf(const Segment& segment, Generation lineage, Step step) {
  return {.lineage = lineage,
          .step = step,
          .shard_count = segment.spec().shard_count,
          .layout = segment.spec().layout};
}

TEST(Segment, IsTheSameForWhoeverHoldsADescriptor) {
  auto made = MakeSegment(1, 3, 4, "job-g4-r1");
  TrainTo(*made, 10);
  TrainTo(*made, 11);
  auto mapped = Segment::Map(Duplicate(made->fd()), Segment::Access::kReadOnly);
  made.reset();
  ASSERT_TRUE(mapped.ok()) << mapped.status().ToString();
  const Segment& segment = **mapped;
  EXPECT_TRUE(SameShard(segment.spec(), SmallSpec(1, 3)));
  EXPECT_EQ(segment.spec().name, "job-g4-r1");
  EXPECT_EQ(segment.history(), (SegmentHistory{.lineage = 4}));
  EXPECT_EQ(segment.NewestStep(), 11);
  for (const Step step : {10, 11}) {
    const std::optional<int> slot = segment.Find(StateOf(segment, 4, step));
    ASSERT_TRUE(slot.has_value());
    EXPECT_EQ(CountWrong(segment.Arrays(*slot), step), 0);
    const auto cursor = segment.Cursor(*slot, step);
    ASSERT_TRUE(cursor.ok());
    EXPECT_EQ(*cursor, CursorOf(step));
  }
}

TEST(Segment, SlotsAreAlignedForHugePagesAndApart) {
  const auto segment = MakeSegment(0, 1);
  const auto place = reinterpret_cast<std::uintptr_t>(segment->slot(0));
  EXPECT_EQ((segment->slot(1) - segment->slot(0)) % (2 << 20), 0);
  EXPECT_EQ(place % 4096, 0U);
  EXPECT_GE(segment->slot(1) - segment->slot(0),
            static_cast<std::ptrdiff_t>(segment->slot_bytes()));
}

// Kilobytes that the mapping at `place` shows as huge pages of shared memory.
int HugeKilobytes(const void* place) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    int kilobytes = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto address = reinterpret_cast<std::uintptr_t>(place);
      inside = begin <= address && address < end;
    } else if (inside && std::sscanf(line.c_str(), "ShmemPmdMapped: %d", &kilobytes) == 1) {
      return kilobytes;
    }
  }
  return 0;
}

bool KernelMakesHugePages() {
  constexpr std::size_t kBytes = 2 << 20;
  constexpr int kCollapse = 25;
  const UniqueFd fd(::memfd_create("huge", MFD_CLOEXEC));
  if (::ftruncate(fd.get(), kBytes) != 0) return false;
  auto* room = static_cast<std::byte*>(
      ::mmap(nullptr, 2 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::byte* aligned = room + (kBytes - reinterpret_cast<std::uintptr_t>(room) % kBytes) % kBytes;
  ::mmap(aligned, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(), 0);
  *aligned = std::byte{1};
  const bool makes = ::madvise(aligned, kBytes, kCollapse) == 0;
  ::munmap(room, 2 * kBytes);
  return makes;
}

TEST(Segment, TrainingSlotsBecomeHugePages) {
  if (!KernelMakesHugePages()) GTEST_SKIP() << "no MADV_COLLAPSE for memory files";
  const auto segment = Segment::Create(SmallSpec(0, 1), 1);
  ASSERT_TRUE(segment.ok()) << segment.status().ToString();
  const std::byte* slots = (*segment)->slot(0);
  EXPECT_TRUE(Eventually([&] { return HugeKilobytes(slots) >= kTrainingSlots * 2048; }));
}

TEST(Segment, AHeldSlotStaysAsItIsWhileTrainingGoesOn) {
  const auto segment = MakeSegment(0, 1);
  segment->PrepareHold();
  TrainTo(*segment, 4);
  TrainTo(*segment, 5);
  const int held = segment->NewestSlot();
  SealedShard sealed = segment->Hold(held);
  EXPECT_EQ(sealed.bytes, segment->slot_bytes());
  for (Step step = 6; step < 12; ++step) {
    TrainTo(*segment, step);
    EXPECT_EQ(segment->NewestStep(), step);
    EXPECT_EQ(CountWrong(segment->Arrays(segment->NewestSlot()), step), 0);
    EXPECT_EQ(CountWrong(segment->Arrays(held), 5), 0);
  }
  EXPECT_EQ(sealed.data.get(), segment->slot(held));
  EXPECT_TRUE(sealed.intact());
  sealed = {};
  TrainTo(*segment, 12);
  TrainTo(*segment, 13);
  EXPECT_THAT(segment->Labels(held), ::testing::Not(ElementsAre(5))) << "it is used again";
}

TEST(Segment, WhatIsHeldOutlivesItAndKnowsWhetherItWasGivenUp) {
  auto segment = MakeSegment(0, 1);
  TrainTo(*segment, 5);
  const SealedShard sealed = segment->Hold(segment->NewestSlot());
  segment->Continue(2, StateOf(*segment, 1, 5));
  EXPECT_TRUE(sealed.intact());
  auto other = Segment::Map(Duplicate(segment->fd()), Segment::Access::kReadWrite);
  ASSERT_TRUE(other.ok());
  (*other)->Begin(3);
  EXPECT_FALSE(sealed.intact());
  segment.reset();
  EXPECT_TRUE(std::any_of(sealed.data.get(), sealed.data.get() + sealed.bytes,
                          [](std::byte each) { return each != std::byte{0}; }));
}

TEST(Segment, ACheckpointIsWrittenFromAHeldSlot) {
  const TempDirForTest folder;
  const auto segment = MakeSegment(0, 1);
  TrainTo(*segment, 5);
  const int slot = segment->NewestSlot();
  const std::vector<ShardArray> arrays = segment->Arrays(slot);
  ShardImage image;
  image.Refer({.rank = 0, .world_size = 1, .cursor = CursorOf(5), .arrays = arrays},
              segment->Hold(slot));
  const auto record = WriteShard(folder.path() + "/rank-00000.shard", image);
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  ShardImage copy = testing::ImageOf(
      {.rank = 0, .world_size = 1, .cursor = CursorOf(5), .arrays = segment->Arrays(slot)});
  const auto of_copy = WriteShard(folder.path() + "/copy.shard", copy);
  ASSERT_TRUE(of_copy.ok()) << of_copy.status().ToString();
  EXPECT_EQ(record->checksum, of_copy->checksum);
}

TEST(Segment, AStepThatChangedNothingIsALabelMore) {
  const auto segment = MakeSegment(0, 1);
  TrainTo(*segment, 5);
  const int slot = segment->NewestSlot();
  segment->Seal(slot, CursorOf(6));
  EXPECT_THAT(segment->Labels(slot), ElementsAre(5, 6));
  segment->Seal(slot, CursorOf(7));
  EXPECT_THAT(segment->Labels(slot), ElementsAre(6, 7));
  EXPECT_EQ(*segment->Cursor(slot, 6), CursorOf(6));
  EXPECT_FALSE(segment->Cursor(slot, 5).ok());
  segment->Unseal(slot);
  EXPECT_THAT(segment->Labels(slot), IsEmpty());
  EXPECT_EQ(segment->NewestStep(), -1);
}

TEST(Segment, GoingOnTakesAwayWhatIsBeyondTheCut) {
  const auto segment = MakeSegment(0, 2, 1);
  TrainTo(*segment, 8);
  TrainTo(*segment, 9);
  segment->Continue(2, StateOf(*segment, 1, 8));
  EXPECT_EQ(segment->NewestStep(), 8);
  EXPECT_EQ(segment->history(), (SegmentHistory{.lineage = 2, .parent = 1, .parent_step = 8}));
  // Step 8 is the parent's and the child's; what comes then is the child's alone.
  EXPECT_TRUE(segment->Find(StateOf(*segment, 1, 8)).has_value());
  EXPECT_TRUE(segment->Find(StateOf(*segment, 2, 8)).has_value());
  TrainTo(*segment, 9);
  EXPECT_TRUE(segment->Find(StateOf(*segment, 2, 9)).has_value());
  EXPECT_FALSE(segment->Find(StateOf(*segment, 1, 9)).has_value());
}

TEST(Segment, AFormingThatFailedLeavesTheParentsStep) {
  const auto segment = MakeSegment(0, 2, 1);
  TrainTo(*segment, 8);
  segment->Continue(2, StateOf(*segment, 1, 8));
  // Generation 2 never trained; 3 goes on from the same state of 1.
  segment->Continue(3, StateOf(*segment, 1, 8));
  EXPECT_EQ(segment->history(), (SegmentHistory{.lineage = 3, .parent = 1, .parent_step = 8}));
  EXPECT_EQ(segment->NewestStep(), 8);
}

TEST(Segment, AnotherCourseOfTrainingBeginsAnew) {
  const auto segment = MakeSegment(0, 2, 1);
  TrainTo(*segment, 8);
  segment->Continue(5, StateOf(*segment, 4, 8));
  EXPECT_EQ(segment->NewestStep(), -1);
  EXPECT_EQ(segment->history(), (SegmentHistory{.lineage = 5}));
}

TEST(Segment, RefusesWhatIsNone) {
  UniqueFd pipes[2];
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  pipes[0].reset(ends[0]);
  pipes[1].reset(ends[1]);
  EXPECT_EQ(Segment::Map(std::move(pipes[0]), Segment::Access::kReadOnly).status().code(),
            StatusCode::kDataLoss);
  // A memory file that could be cut off under its readers.
  UniqueFd open_ended(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open_ended.get(), 8 << 20), 0);
  EXPECT_EQ(Segment::Map(Duplicate(open_ended.get()), Segment::Access::kReadOnly).status().code(),
            StatusCode::kDataLoss);
  ASSERT_EQ(::fcntl(open_ended.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(Segment::Map(std::move(open_ended), Segment::Access::kReadOnly).status().code(),
            StatusCode::kDataLoss);
}

TEST(Segment, CannotBeCutOff) {
  const auto segment = MakeSegment(0, 1);
  EXPECT_NE(::ftruncate(segment->fd(), 0), 0);
}

// For every byte of header and directory: a segment in which it is another one is read as what it
// was, or refused; it never crashes.
TEST(Segment, AnyDamagedByteOfTheHeaderIsAnErrorAtWorst) {
  const auto segment = MakeSegment(0, 2, 3);
  TrainTo(*segment, 4);
  const auto read = [&](off_t at) {
    unsigned char byte = 0;
    EXPECT_EQ(::pread(segment->fd(), &byte, 1, at), 1);
    return byte;
  };
  const auto write = [&](off_t at, unsigned char byte) {
    EXPECT_EQ(::pwrite(segment->fd(), &byte, 1, at), 1);
  };
  const auto directory_end = [&] {
    off_t end = 8192;
    while (read(end) != 0) ++end;
    return end;
  }();
  int refused = 0;
  for (off_t at = 0; at < directory_end; ++at) {
    if (at == 256 + 4096) at = 8192;  // nothing lies between labels and directory
    const unsigned char was = read(at);
    write(at, was ^ 0x41);
    auto mapped = Segment::Map(Duplicate(segment->fd()), Segment::Access::kReadOnly);
    if (!mapped.ok()) {
      ++refused;
      EXPECT_EQ(mapped.status().code(), StatusCode::kDataLoss) << at;
    } else {
      // Labels and history are looked at when they are asked for.
      const Segment& same = **mapped;
      for (const Step step : same.Labels(same.NewestSlot())) {
        (void)same.Cursor(same.NewestSlot(), step);
      }
      (void)CountWrong(same.Arrays(same.NewestSlot()), 4);
    }
    write(at, was);
  }
  EXPECT_GE(refused, directory_end - 8192);
  EXPECT_TRUE(Segment::Map(Duplicate(segment->fd()), Segment::Access::kReadOnly).ok());
}

// A process that trains and is killed at some moment, again and again.
TEST(Segment, AKillAtAnyMomentLeavesTheStepOrTheOneBefore) {
  const auto segment = MakeSegment(0, 1);
  auto* begun = static_cast<std::atomic<Step>*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::minstd_rand random(5);
  for (int kill_number = 0; kill_number < 60; ++kill_number) {
    const Step first = segment->NewestStep() + 1;
    *begun = first;
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      for (Step step = first;; ++step) {
        *begun = step;
        TrainTo(*segment, step);
        // As fp16 overflows do.
        if (step % 3 == 0) segment->Seal(segment->NewestSlot(), CursorOf(++step));
      }
    }
    const Step enough = first + 1 + static_cast<Step>(random() % 20);
    EXPECT_TRUE(Eventually([&] { return *begun >= enough; }));
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
    const Step newest = segment->NewestStep();
    EXPECT_GE(newest, *begun - 1);
    const int slot = segment->NewestSlot();
    const Step written = segment->Labels(slot).front();
    EXPECT_EQ(CountWrong(segment->Arrays(slot), written), 0) << "step " << newest;
    for (const Step step : segment->Labels(slot)) {
      const auto cursor = segment->Cursor(slot, step);
      ASSERT_TRUE(cursor.ok()) << cursor.status().ToString();
      EXPECT_EQ(*cursor, CursorOf(step));
    }
  }
  ::munmap(begun, 4096);
}

}  // namespace
}  // namespace muster
