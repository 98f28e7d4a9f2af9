// CheckpointerTest: ranks as threads that save to a directory and load from it. Header of tests
// only.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "trainer/comm/group/testing/in_process_communicator.h"
#include "trainer/state/checkpoint/checkpointer.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/state/checkpoint/shard_file.h"
#include "trainer/state/checkpoint/testing/checkpoint_testing.h"

namespace muster::testing {

inline constexpr int kRanks = 2;

inline Deadline Soon() { return Deadline::After(std::chrono::seconds(10)); }

inline TrainCursor CursorAt(Step step) {
  return {step, step * 8, step * 100, 42, 0x1234u + static_cast<std::uint64_t>(step)};
}

// What rank r holds at a step.
inline State StateOf(int rank, Step step) {
  return State(rank * 1000 + static_cast<int>(step), rank);
}

// A gang of one, for what needs no peers.
class Alone {
 public:
  Alone() {
    Rendezvous rendezvous;
    EXPECT_TRUE(communicator_->Form(std::move(rendezvous), Soon()).ok());
  }
  Communicator& operator*() { return *communicator_; }

 private:
  InProcessGroup group_{1};
  const std::unique_ptr<Communicator> communicator_ = group_.Join(0);
};

inline void SaveOne(Checkpointer& checkpointer, const TrainCursor& cursor,
                    const std::vector<ShardArray>& arrays) {
  Alone alone;
  const auto saved = checkpointer.Save(*alone, cursor, arrays);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  EXPECT_EQ(*saved, SaveOutcome::kTaken);
}

// A committer that does nothing until it is let go.
class Gate final : public CheckpointCommitter {
 public:
  Status ShardWritten(const CheckpointManifest& checkpoint, const ShardRecord& record) override {
    std::unique_lock lock(mutex_);
    arrived_.push_back(checkpoint.step);
    generations_.push_back(checkpoint.generation);
    records_.push_back(record);
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    return OkStatus();
  }
  void Failed(const CheckpointManifest&, int, const Status& reason) override {
    std::lock_guard lock(mutex_);
    failures_.push_back(reason);
  }
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void AwaitArrival() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !arrived_.empty(); });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  std::vector<Step> arrived_;
  std::vector<Generation> generations_;
  std::vector<ShardRecord> records_;
  std::vector<Status> failures_;
};

// Lets a test keep the committer that a checkpointer owns.
class Forward final : public CheckpointCommitter {
 public:
  explicit Forward(CheckpointCommitter* to) : to_(to) {}
  Status ShardWritten(const CheckpointManifest& c, const ShardRecord& s) override {
    return to_->ShardWritten(c, s);
  }
  void Failed(const CheckpointManifest& c, int rank, const Status& reason) override {
    to_->Failed(c, rank, reason);
  }

 private:
  CheckpointCommitter* const to_;
};

class CheckpointerTest : public ::testing::Test {
 protected:
  CheckpointerOptions OptionsFor(int rank, int world_size = kRanks) const {
    CheckpointerOptions options;
    options.directory = root();
    options.job_id = "0123456789";
    options.generation = generation_;
    options.rank = rank;
    options.world_size = world_size;
    options.resume_file = resume_file_;
    return options;
  }
  std::unique_ptr<Checkpointer> Local(int rank, int world_size = kRanks, int keep = 2,
                                      Duration timeout = std::chrono::seconds(10)) const {
    return std::make_unique<Checkpointer>(
        OptionsFor(rank, world_size),
        MakeLocalCommitter({.directory = root(), .keep = keep, .timeout = timeout}));
  }
  std::string root() const { return dir_.path() + "/checkpoints"; }
  std::string Shard(Step step, int rank) const {
    return root() + "/" + CheckpointDirectoryName(step, generation_) + "/" + ShardFileName(rank);
  }

  // All ranks save and commit `steps`.
  void SaveAll(const std::vector<Step>& steps, int world_size = kRanks, int keep = 2) {
    EachRank(world_size, [&](int rank, Communicator& communicator) {
      const auto checkpointer = Local(rank, world_size, keep);
      for (const Step step : steps) {
        const auto saved =
            checkpointer->Save(communicator, CursorAt(step), StateOf(rank, step).arrays());
        ASSERT_TRUE(saved.ok()) << saved.status().ToString();
        const Status drained = checkpointer->Drain(Soon());
        EXPECT_TRUE(drained.ok()) << drained.ToString();
        // The next Save is taken only if no rank is still writing this one.
        EXPECT_TRUE(communicator.Barrier().ok());
      }
    });
  }

  struct Loaded {
    Result<LoadOutcome> outcome = LoadOutcome{};
    State state = State(-1);
    TrainCursor cursor;
    Generation generation = 0;
  };
  std::vector<Loaded> LoadAll(int world_size = kRanks) {
    std::vector<Loaded> loaded(static_cast<std::size_t>(world_size));
    EachRank(world_size, [&](int rank, Communicator& communicator) {
      Loaded& mine = loaded[static_cast<std::size_t>(rank)];
      mine.state = State(-1, rank);
      const auto checkpointer = Local(rank, world_size);
      mine.outcome = checkpointer->LoadNewest(communicator, mine.state.arrays(), &mine.cursor);
      mine.generation = checkpointer->generation();
    });
    return loaded;
  }

  static void EachRank(int world_size, const std::function<void(int, Communicator&)>& body) {
    InProcessGroup group(world_size);
    std::vector<std::thread> threads;
    for (int r = 0; r < world_size; ++r) {
      threads.emplace_back([&, r] {
        const auto communicator = group.Join(r);
        Rendezvous rendezvous;
        rendezvous.rank = r;
        rendezvous.world_size = world_size;
        ASSERT_TRUE(communicator->Form(std::move(rendezvous), Soon()).ok());
        body(r, *communicator);
        EXPECT_TRUE(communicator->Barrier().ok());
      });
    }
    for (auto& thread : threads) thread.join();
  }

  void Damage(const std::string& path) {
    std::string content = *ReadFile(path);
    content[content.size() - kShardBlock - kShardBlock] ^=
        1;  // the first byte of the data's last block
    ASSERT_TRUE(WriteFileAtomically(path, content).ok());
  }

  std::vector<Step> Committed() const {
    std::vector<Step> steps;
    const auto found = FindManifests(root());
    if (found.ok()) {
      for (const auto& each : found->manifests) steps.push_back(each.step);
    }
    return steps;
  }

  const TempDirForTest dir_;
  Generation generation_ = 1;
  std::string resume_file_;
};

}  // namespace muster::testing
