#include "trainer/train/export.h"

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/train/testing/trainer_testing.h"

namespace muster {
namespace {

class ExportTest : public TrainerTest {
 protected:
  struct Outcome {
    Status status;
    std::size_t units = 0;
    std::size_t moves = 0;
    std::uint64_t collectives = 0;
  };
  // A rank that holds the whole model; `called_off` is what rank 0 hears before the renaming.
  void Export(InProcessGroup& group, int rank, const Status& called_off, Outcome* outcome) const {
    const std::unique_ptr<Communicator> communicator = group.Join(rank);
    ASSERT_TRUE(
        communicator
            ->Form({.rank = rank, .world_size = ranks_}, Deadline::After(std::chrono::seconds(10)))
            .ok());
    const std::unique_ptr<DeviceOps> ops = MakeCpuOps();
    TrainSpec train = *Spec("out").train;
    train.fsdp.strategy = ShardingStrategy::kNoShard;
    auto engine = FsdpEngine::Create(SmallConfig(), *communicator, *ops, OptionsOf(train, ranks_));
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    const std::uint64_t before = communicator->counters().enqueued;
    outcome->status = ExportModel(SmallConfig(), **engine, *communicator,
                                  {.source_dir = dir_ + "/model",
                                   .target_dir = dir_ + "/out",
                                   .called_off = [&] { return called_off; },
                                   .on_moved = [&] { ++outcome->moves; }});
    outcome->units = (*engine)->layout().units().size();
    outcome->collectives = communicator->counters().enqueued - before;
  }
  std::vector<Outcome> ExportAll(const Status& called_off = OkStatus()) const {
    InProcessGroup group(ranks_);
    std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([&, rank] {
        Export(group, rank, called_off, &outcomes[static_cast<std::size_t>(rank)]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }
};

// One wait for all of a large model was longer than a collective may take.
TEST_F(ExportTest, ReplicasThatWaitForRankZeroMeetAfterEachUnit) {
  const std::vector<Outcome> outcomes = ExportAll();
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_GT(outcome.units, 2u);
    EXPECT_GE(outcome.collectives, outcome.units);
  }
  EXPECT_EQ(outcomes[1].moves, outcomes[1].units);
  EXPECT_GT(outcomes[0].moves, outcomes[0].units) << "each piece counts";
  EXPECT_TRUE(SafetensorsModel::Open(dir_ + "/out").ok());
}

TEST_F(ExportTest, AGenerationThatIsCalledOffPutsNothingInPlace) {
  const std::vector<Outcome> outcomes = ExportAll(Cancelled("called off"));
  EXPECT_EQ(outcomes[0].status.code(), StatusCode::kCancelled);
  EXPECT_EQ(outcomes[1].status.code(), StatusCode::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/out"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/out.writing"));
}

}  // namespace
}  // namespace muster
