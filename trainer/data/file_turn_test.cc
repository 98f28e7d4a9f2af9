#include "trainer/data/file_turn.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

using std::chrono::milliseconds;

bool Never() { return false; }

class FileTurnTest : public ::testing::Test {
 protected:
  FileTurn Open() const {
    auto turn = FileTurn::Open(path_);
    EXPECT_TRUE(turn.ok()) << turn.status().ToString();
    return *std::move(turn);
  }

  TempDirForTest dir_;
  const std::string path_ = dir_ / "x.lock";
};

TEST_F(FileTurnTest, OneHasItAndTheNextOneWhenThatOneIsGone) {
  auto first = std::make_unique<FileTurn>(Open());
  EXPECT_EQ(first->Await(Never, {}), Turn::kOwn);
  FileTurn second = Open();
  int waited = 0;
  const Turn turn = second.Await(Never, {.on_wait = [&] {
                                   if (++waited == 3) first.reset();
                                 }});
  EXPECT_EQ(turn, Turn::kOwn);
  EXPECT_EQ(waited, 3);
}

TEST_F(FileTurnTest, WhatIsDoneIsNotDoneAgain) {
  const auto done = [] { return true; };
  EXPECT_EQ(Open().Await(done, {}), Turn::kDone) << "no other process is there";
  FileTurn other = Open();
  ASSERT_EQ(other.Await(Never, {}), Turn::kOwn);
  EXPECT_EQ(Open().Await(done, {}), Turn::kDone) << "and before the other one is gone";
}

TEST_F(FileTurnTest, WhoStandsStillIsStuckAndWhoGetsOnIsNot) {
  FileTurn other = Open();
  ASSERT_EQ(other.Await(Never, {}), Turn::kOwn);
  FileTurn mine = Open();
  EXPECT_EQ(mine.Await(Never, {.timeout = milliseconds(200)}), Turn::kStuck);
  // Three times as long as the timeout, with a process that touches it all the time.
  const Deadline end = Deadline::After(milliseconds(2400));
  std::atomic<bool> ended = false;
  std::thread work([&] {
    while (!end.Expired()) {
      other.Touch();
      std::this_thread::yield();
    }
    ended = true;
  });
  int moved = 0;
  const Turn turn = mine.Await([&] { return ended.load(); },
                               {.on_read = [&] { ++moved; }, .timeout = milliseconds(800)});
  work.join();
  EXPECT_EQ(turn, Turn::kDone);
  EXPECT_GE(moved, 3);
}

TEST_F(FileTurnTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_EQ(FileTurn::Open(dir_ / "no/x.lock").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster
