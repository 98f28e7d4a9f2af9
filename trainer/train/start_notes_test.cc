#include "trainer/train/start_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobSpec Spec(FsdpSpec fsdp) {
  JobSpec spec;
  spec.train.emplace().fsdp = fsdp;
  return spec;
}

TEST(StartNotes, AHybridOfOneNodeIsNamedForWhatItIs) {
  const RankEnv one_node{.world_size = 4, .local_world_size = 4};
  const RankEnv two_nodes{.world_size = 4, .local_world_size = 2};
  const JobSpec hybrid = Spec({.strategy = ShardingStrategy::kHybridShard});
  EXPECT_THAT(StartNotes(hybrid, one_node), ElementsAre(HasSubstr("is full_shard")));
  EXPECT_THAT(StartNotes(hybrid, two_nodes), IsEmpty());
  EXPECT_THAT(StartNotes(Spec({.strategy = ShardingStrategy::kHybridShardZero2}), one_node),
              ElementsAre(HasSubstr("is shard_grad_op")));
}

TEST(StartNotes, FakeGpusAreNamed) {
  EXPECT_THAT(StartNotes(Spec({}), {.fake_gpus = true}),
              ElementsAre("the GPUs of this node are fake: training on the CPU"));
  EXPECT_THAT(StartNotes(Spec({}), {}), IsEmpty());
}

TEST(StartNotes, OffloadingIsNothingOnACpu) {
  JobSpec spec = Spec(
      {.activation_checkpointing = ActivationCheckpointing::kFullOffload, .cpu_offload = true});
  EXPECT_THAT(StartNotes(spec, {}), ElementsAre(HasSubstr("is full:"), HasSubstr("cpu_offload")));
  spec.resources.device = "cuda";
  EXPECT_THAT(StartNotes(spec, {}), IsEmpty());
}

TEST(StartNotes, ABuddyNeedsAnotherNode) {
  JobSpec spec = Spec({});
  spec.train->snapshot.buddy = BuddyCopies::kOn;
  EXPECT_THAT(StartNotes(spec, {.world_size = 2, .local_world_size = 2}),
              ElementsAre(HasSubstr("train.snapshot.buddy")));
  EXPECT_THAT(StartNotes(spec, {.world_size = 2, .local_world_size = 1}), IsEmpty());
}

TEST(StartNotes, FewerRanksDivideExpertsAmongFewer) {
  const JobSpec spec = Spec({.expert_parallel = 4});
  EXPECT_THAT(StartNotes(spec, {.world_size = 6, .local_world_size = 3}),
              ElementsAre("train.fsdp.expert_parallel 4 does not divide the 6 ranks that there "
                          "are: experts are divided among 2"));
  EXPECT_THAT(StartNotes(spec, {.world_size = 8, .local_world_size = 4}), IsEmpty());
}

TEST(StartNotes, TheDefaultsNeedNone) { EXPECT_THAT(StartNotes(Spec({}), {}), IsEmpty()); }

}  // namespace
}  // namespace muster
