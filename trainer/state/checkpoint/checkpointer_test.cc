#include "trainer/state/checkpoint/checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/state/checkpoint/testing/checkpointer_testing.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(CheckpointerTest, NothingToResumeFromIsStepZero) {
  for (const Loaded& loaded : LoadAll()) {
    ASSERT_TRUE(loaded.outcome.ok()) << loaded.outcome.status().ToString();
    EXPECT_EQ(loaded.outcome->step, 0);
    EXPECT_EQ(loaded.state, State(-1, loaded.state.rank));
  }
}

TEST_F(CheckpointerTest, NewestStateComesBackOnEveryRank) {
  SaveAll({50, 100});
  const auto loaded = LoadAll();
  for (int r = 0; r < kRanks; ++r) {
    const Loaded& mine = loaded[static_cast<std::size_t>(r)];
    ASSERT_TRUE(mine.outcome.ok()) << mine.outcome.status().ToString();
    EXPECT_EQ(mine.outcome->step, 100);
    EXPECT_EQ(mine.outcome->directory, "step-00000100-g1");
    EXPECT_TRUE(mine.outcome->rejected.empty());
    EXPECT_EQ(mine.state, StateOf(r, 100));
    EXPECT_EQ(mine.cursor, CursorAt(100));
    // Plain torchrun counts from 1 again: new directories must not be the old ones.
    EXPECT_EQ(mine.generation, 2);
  }
}

TEST_F(CheckpointerTest, DamagedShardOfOneRankSendsAllToTheOneBefore) {
  SaveAll({50, 100});
  Damage(Shard(100, 1));
  const auto loaded = LoadAll();
  for (int r = 0; r < kRanks; ++r) {
    const Loaded& mine = loaded[static_cast<std::size_t>(r)];
    ASSERT_TRUE(mine.outcome.ok()) << mine.outcome.status().ToString();
    EXPECT_EQ(mine.outcome->step, 50);
    EXPECT_EQ(mine.state, StateOf(r, 50));
    ASSERT_EQ(mine.outcome->rejected.size(), 1u);
    EXPECT_EQ(mine.outcome->rejected[0].directory, "step-00000100-g1");
    // Rank 0 reports it to the timeline although rank 1 found it.
    EXPECT_THAT(mine.outcome->rejected[0].reason, HasSubstr("rank 1: "));
    EXPECT_THAT(mine.outcome->rejected[0].reason, HasSubstr("is damaged"));
  }
}

// A missing one may be on a disk that is not mounted there: it is passed over, not condemned.
TEST_F(CheckpointerTest, MissingAndTruncatedShardsArePassedOver) {
  SaveAll({50, 100, 150}, kRanks, 3);
  std::filesystem::remove(Shard(150, 0));
  std::filesystem::resize_file(Shard(100, 1), 200);
  for (const Loaded& loaded : LoadAll()) {
    ASSERT_TRUE(loaded.outcome.ok());
    EXPECT_EQ(loaded.outcome->step, 50);
    ASSERT_EQ(loaded.outcome->missing.size(), 1u);
    EXPECT_EQ(loaded.outcome->missing[0].directory, "step-00000150-g1");
    EXPECT_THAT(loaded.outcome->missing[0].reason, HasSubstr("rank 0: "));
    ASSERT_EQ(loaded.outcome->rejected.size(), 1u);
    EXPECT_THAT(loaded.outcome->rejected[0].reason, HasSubstr("has 200 bytes"));
  }
}

// Going back to an older checkpoint would throw work away for what may be over in a moment.
TEST_F(CheckpointerTest, AShardThatCannotBeOpenedEndsTheAttempt) {
  SaveAll({50, 100});
  std::filesystem::remove(Shard(100, 1));
  std::filesystem::create_symlink(ShardFileName(1), Shard(100, 1));  // a loop
  for (const Loaded& loaded : LoadAll()) {
    EXPECT_EQ(loaded.outcome.status().code(), StatusCode::kInternal);
    EXPECT_THAT(loaded.outcome.status().message(), HasSubstr("rank 1: open "));
  }
}

TEST_F(CheckpointerTest, WhenAllAreDamagedNothingOfThemIsLeft) {
  SaveAll({50});
  Damage(Shard(50, 0));
  for (const Loaded& loaded : LoadAll()) {
    ASSERT_TRUE(loaded.outcome.ok());
    EXPECT_EQ(loaded.outcome->step, 0);
    EXPECT_EQ(loaded.outcome->rejected.size(), 1u);
    // Nothing of what was read before the damage was found.
    EXPECT_EQ(loaded.state, State::Zero(loaded.state.rank));
  }
}

// 2 -> 3 -> 1 -> 4 ranks, weights and both moments.
TEST_F(CheckpointerTest, StateTravelsThroughGangsOfOtherSizes) {
  const std::vector<UnitSpec> units = {{"embed", {{"embed", {53, 8}}}},
                                       {"block", {{"q", {40, 9}}, {"norm", {8}}}}};
  Step step = 10;
  for (const int world_size : {2, 3, 1, 4}) {
    const FlatLayout layout(units, world_size);
    EachRank(world_size, [&](int rank, Communicator& communicator) {
      RankState state(layout, rank);
      if (step == 10) state.Fill();
      CheckpointerOptions options = OptionsFor(rank, world_size);
      options.parameters = layout.parameter_count();
      Checkpointer checkpointer(options, MakeLocalCommitter({.directory = root()}));
      TrainCursor cursor;
      const auto outcome = checkpointer.LoadNewest(communicator, state.arrays(), &cursor);
      ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
      EXPECT_EQ(outcome->step, step - 10);
      EXPECT_TRUE(state.IsFilled());
      EXPECT_EQ(cursor, step > 10 ? CursorAt(step - 10) : TrainCursor());
      ASSERT_TRUE(checkpointer.Save(communicator, CursorAt(step), state.arrays()).ok());
      EXPECT_TRUE(checkpointer.Drain(Soon()).ok());
    });
    step += 10;
  }
}

// A file server that takes longer for a rank's share than a standstill may last is no hang.
TEST_F(CheckpointerTest, LoadingShowsThatBytesArrive) {
  SaveAll({50});
  EachRank(kRanks, [&](int rank, Communicator& communicator) {
    int moves = 0;
    CheckpointerOptions options = OptionsFor(rank);
    options.on_read = [&] { ++moves; };
    Checkpointer checkpointer(options, MakeLocalCommitter({.directory = root()}));
    State state(-1, rank);
    TrainCursor cursor;
    ASSERT_TRUE(checkpointer.LoadNewest(communicator, state.arrays(), &cursor).ok());
    EXPECT_EQ(cursor.step, 50);
    EXPECT_EQ(moves, 3) << "one for each interval";
  });
}

TEST_F(CheckpointerTest, AnotherModelIsAClearErrorOnEveryRank) {
  SaveAll({50});
  EachRank(kRanks, [&](int rank, Communicator& communicator) {
    State state(-1, rank);
    auto arrays = state.arrays();
    if (rank == 1) arrays[0].intervals[0].tensor = "other";
    TrainCursor cursor;
    const auto outcome = Local(rank)->LoadNewest(communicator, arrays, &cursor);
    EXPECT_EQ(outcome.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(outcome.status().message(), HasSubstr("rank 1: "));
    EXPECT_THAT(outcome.status().message(), HasSubstr("does not fit this job's model"));
    EXPECT_EQ(cursor, TrainCursor());
  });
}

// A larger model that has all tensors of this one would otherwise load without a word.
TEST_F(CheckpointerTest, ALargerModelWithTheSameTensorsIsRefused) {
  Alone alone;
  CheckpointerOptions options = OptionsFor(0, 1);
  options.parameters = 5000;
  {
    Checkpointer checkpointer(options, MakeLocalCommitter({.directory = root()}));
    ASSERT_TRUE(checkpointer.Save(*alone, CursorAt(5), State(5).arrays()).ok());
    ASSERT_TRUE(checkpointer.Drain(Soon()).ok());
  }
  options.parameters = 990;
  Checkpointer checkpointer(options, MakeLocalCommitter({.directory = root()}));
  TrainCursor cursor;
  const auto outcome = checkpointer.LoadNewest(*alone, State(-1).arrays(), &cursor);
  EXPECT_EQ(outcome.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(outcome.status().message(), HasSubstr("5000 parameters, this one has 990"));
}

TEST_F(CheckpointerTest, ArraysOnADeviceAreSavedLoadedAndCleared) {
  Alone alone;
  CheckpointerOptions options = OptionsFor(0, 1);
  options.memory = FakeDevice::memory();
  const auto open = [&] {
    return std::make_unique<Checkpointer>(options, MakeLocalCommitter({.directory = root()}));
  };
  {
    const auto checkpointer = open();
    SaveOne(*checkpointer, CursorAt(5), FakeDevice::Hide(State(5).arrays()));
  }
  State state(-1);
  TrainCursor cursor;
  const auto loaded = open()->LoadNewest(*alone, FakeDevice::Hide(state.arrays()), &cursor);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(state, State(5));
  Damage(Shard(5, 0));
  EXPECT_EQ(open()->LoadNewest(*alone, FakeDevice::Hide(state.arrays()), &cursor)->step, 0);
  EXPECT_EQ(state, State::Zero(0));
}

TEST_F(CheckpointerTest, OnlyTheFirstReplicaWritesAndAllResume) {
  for (const bool load : {false, true}) {
    EachRank(kRanks, [&](int rank, Communicator& communicator) {
      CheckpointerOptions options = OptionsFor(rank);
      options.writes = rank == 0;
      Checkpointer checkpointer(options, MakeLocalCommitter({.directory = root()}));
      State state = load ? State(-1) : State(5);
      TrainCursor cursor;
      if (load) {
        const auto outcome = checkpointer.LoadNewest(communicator, state.arrays(), &cursor);
        ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
        EXPECT_EQ(state, State(5));
        EXPECT_EQ(cursor, CursorAt(5));
      } else {
        checkpointer.Prepare(state.arrays());
        ASSERT_TRUE(checkpointer.Save(communicator, CursorAt(5), state.arrays()).ok());
        EXPECT_TRUE(checkpointer.Drain(Soon()).ok());
      }
    });
  }
  EXPECT_GT(std::filesystem::file_size(Shard(5, 0)), 2 * kShardBlock);
  EXPECT_EQ(std::filesystem::file_size(Shard(5, 1)), kShardBlock);
}

TEST_F(CheckpointerTest, ResumeFileDecidesWhatCounts) {
  SaveAll({50, 100});
  resume_file_ = dir_.path() + "/resume.json";
  generation_ = 7;
  const auto older = ReadManifest(root(), "step-00000050-g1");
  ASSERT_TRUE(older.ok());
  ASSERT_TRUE(WriteFileAtomically(resume_file_, ManifestListToJson({*older})).ok());
  for (const Loaded& loaded : LoadAll()) {
    ASSERT_TRUE(loaded.outcome.ok()) << loaded.outcome.status().ToString();
    EXPECT_EQ(loaded.outcome->step, 50);
    EXPECT_EQ(loaded.generation, 7);
  }
  ASSERT_TRUE(WriteFileAtomically(resume_file_, "[]").ok());
  EXPECT_EQ(LoadAll()[1].outcome->step, 0);
  std::filesystem::remove(resume_file_);
  for (const Loaded& loaded : LoadAll()) {
    EXPECT_EQ(loaded.outcome.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(loaded.outcome.status().message(), HasSubstr("resume.json"));
  }
}

TEST_F(CheckpointerTest, UnreadableManifestIsPartOfTheTimeline) {
  SaveAll({50, 100});
  ASSERT_TRUE(WriteFileAtomically(root() + "/step-00000100-g1/manifest.json", "{").ok());
  for (const Loaded& loaded : LoadAll()) {
    ASSERT_TRUE(loaded.outcome.ok());
    EXPECT_EQ(loaded.outcome->step, 50);
    ASSERT_EQ(loaded.outcome->rejected.size(), 1u);
    EXPECT_THAT(loaded.outcome->rejected[0].reason, HasSubstr("not a JSON object"));
  }
}

TEST_F(CheckpointerTest, KeepsTheNewestAndRemovesTheRest) {
  ASSERT_TRUE(MakeDirectories(root() + "/step-00000010-g1").ok());  // given up by a dead run
  SaveAll({50, 100, 150});
  EXPECT_EQ(Committed(), (std::vector<Step>{150, 100}));
  EXPECT_FALSE(std::filesystem::exists(root() + "/step-00000050-g1"));
  EXPECT_FALSE(std::filesystem::exists(root() + "/step-00000010-g1"));
}

TEST_F(CheckpointerTest, KeepsTheBestBesideTheNewest) {
  const auto checkpointer = std::make_unique<Checkpointer>(
      OptionsFor(0, 1), MakeLocalCommitter({.directory = root(), .keep = 1, .keep_best = true}));
  const std::pair<Step, double> found[] = {{50, 3}, {100, 2}, {150, 2.5}, {200, 4}};
  for (const auto& [step, loss] : found) {
    TrainCursor cursor = CursorAt(step);
    cursor.evaluations = {.step = step, .loss = loss};
    SaveOne(*checkpointer, cursor, StateOf(0, step).arrays());
    ASSERT_TRUE(checkpointer->Drain(Soon()).ok());
  }
  // A step that was not evaluated has no loss, whatever an earlier one's was.
  TrainCursor cursor = CursorAt(250);
  cursor.evaluations = {.step = 200, .loss = 1};
  SaveOne(*checkpointer, cursor, StateOf(0, 250).arrays());
  ASSERT_TRUE(checkpointer->Drain(Soon()).ok());
  EXPECT_EQ(Committed(), (std::vector<Step>{250, 100}));
  const auto manifests = FindManifests(root());
  EXPECT_FALSE(manifests->manifests[0].eval_loss.has_value());
  EXPECT_EQ(manifests->manifests[1].eval_loss, 2);
}

TEST_F(CheckpointerTest, EvaluationsComeBackWithTheState) {
  const auto checkpointer = Local(0, 1);
  TrainCursor cursor = CursorAt(50);
  cursor.evaluations = {.step = 40, .best_step = 30, .best_loss = 1.0 / 3, .without_better = 2};
  SaveOne(*checkpointer, cursor, StateOf(0, 50).arrays());
  ASSERT_TRUE(checkpointer->Drain(Soon()).ok());
  EXPECT_EQ(LoadAll(1)[0].cursor, cursor) << "losses that are not finite included";
}

TEST_F(CheckpointerTest, RankThatNeverReportsCommitsAndPrunesNothing) {
  SaveAll({50, 100});
  generation_ = 2;
  const auto alone = Local(0, kRanks, 1, std::chrono::milliseconds(30));
  SaveOne(*alone, CursorAt(150), StateOf(0, 150).arrays());
  const Status drained = alone->Drain(Soon());
  EXPECT_EQ(drained.code(), StatusCode::kDeadlineExceeded) << drained.ToString();
  EXPECT_THAT(drained.message(), HasSubstr("rank 1 did not report"));
  EXPECT_EQ(alone->counters().failed, 1u);
  EXPECT_EQ(Committed(), (std::vector<Step>{100, 50}));
}

TEST_F(CheckpointerTest, RankThatFailsSparesRankZeroTheWait) {
  const auto first = Local(0);
  const auto second = Local(1);
  // A directory in the place of the shard's temporary file.
  ASSERT_TRUE(MakeDirectories(Shard(50, 1) + ".tmp").ok());
  SaveOne(*second, CursorAt(50), StateOf(1, 50).arrays());
  EXPECT_FALSE(second->Drain(Soon()).ok());
  SaveOne(*first, CursorAt(50), StateOf(0, 50).arrays());
  EXPECT_EQ(first->Drain(Soon()).code(), StatusCode::kAborted);
  EXPECT_TRUE(Committed().empty());
  // Training went on; the next checkpoint is whole.
  SaveOne(*second, CursorAt(60), StateOf(1, 60).arrays());
  SaveOne(*first, CursorAt(60), StateOf(0, 60).arrays());
  EXPECT_TRUE(first->Drain(Soon()).ok());
  EXPECT_EQ(Committed(), (std::vector<Step>{60}));
}

TEST_F(CheckpointerTest, SnapshotIsSealed) {
  Gate gate;
  Alone alone;
  State live(1);
  {
    Checkpointer checkpointer(OptionsFor(0, 1), std::make_unique<Forward>(&gate));
    SaveOne(checkpointer, CursorAt(5), live.arrays());
    // Training goes on while the file is being written.
    live = State(2);
    gate.Open();
    EXPECT_TRUE(checkpointer.Drain(Soon()).ok());
  }
  const auto record = gate.records_.at(0);
  const auto reader = ShardReader::Open(std::filesystem::path(Shard(5, 0)).parent_path(), record);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  State read(0);
  PieceCache cache;
  ASSERT_TRUE(reader->Read(0, 4000, read.weight.data(), &cache).ok());
  EXPECT_EQ(read.weight, State(1).weight);
}

// A disk that is too slow costs checkpoints, on all ranks alike, and no step waits for it.
TEST_F(CheckpointerTest, SaveIsSkippedEverywhereWhileOneRankStillWrites) {
  Gate gate;
  EachRank(kRanks, [&](int rank, Communicator& communicator) {
    Gate free;
    free.Open();
    Checkpointer checkpointer(OptionsFor(rank),
                              std::make_unique<Forward>(rank == 1 ? &gate : &free));
    const auto save = [&](Step step) {
      return *checkpointer.Save(communicator, CursorAt(step), StateOf(rank, step).arrays());
    };
    EXPECT_EQ(save(5), SaveOutcome::kTaken);
    if (rank == 0) {
      EXPECT_TRUE(checkpointer.Drain(Soon()).ok());
    } else {
      gate.AwaitArrival();
      EXPECT_EQ(checkpointer.Drain(Deadline::After(std::chrono::milliseconds(5))).code(),
                StatusCode::kDeadlineExceeded);
    }
    EXPECT_EQ(save(6), SaveOutcome::kSkipped);
    EXPECT_EQ(checkpointer.counters().skipped, 1u);
    if (rank == 1) gate.Open();
    EXPECT_TRUE(checkpointer.Drain(Soon()).ok());
    EXPECT_TRUE(communicator.Barrier().ok());
    EXPECT_EQ(save(7), SaveOutcome::kTaken);
    EXPECT_TRUE(checkpointer.Drain(Soon()).ok());
    EXPECT_EQ(checkpointer.counters().saved, 2u);
  });
  EXPECT_EQ(gate.arrived_, (std::vector<Step>{5, 7}));
}

}  // namespace
}  // namespace muster::testing
