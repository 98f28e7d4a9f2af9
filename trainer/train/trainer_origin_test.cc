// What a resume of a job with adapters compares before it goes on.
#include <gmock/gmock.h>

#include "trainer/inputs/origin_agreement.h"
#include "trainer/model/adapter_form.h"
#include "trainer/state/snapshot/testing/snapshot_testing.h"
#include "trainer/train/testing/trainer_testing.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kFrozen[] = "model.layers.1.mlp.down_proj.weight";

AdapterOrigin Origin(const std::string& weights = "xxh3:1", double alpha = 8) {
  AdapterForm form;
  form.lora.alpha = alpha;
  return {.base_model = "models/base", .base_weights = weights, .form = AdapterFormText(form)};
}

class OriginTest : public TrainerTest {
 protected:
  JobSpec LoraJob(std::int64_t steps) const {
    JobSpec spec = Spec("out");
    spec.train->lora = LoraSpec{.r = 2, .alpha = 4};
    spec.train->schedule.max_steps = steps;
    return spec;
  }
  std::string WeightsFile() const { return dir_ + "/model/model.safetensors"; }
  void ReplaceBase() const {
    std::filesystem::copy_file(WeightsFile(), dir_ + "/kept");
    EditWeights(kFrozen, [](std::vector<float>& values) { values.back() += 0.5f; });
  }
  void PutBaseBack() const { std::filesystem::rename(dir_ + "/kept", WeightsFile()); }
  // Every rank ended as bad input; what they say.
  std::vector<std::string> Refusals(const std::vector<RankResult>& results) const {
    std::vector<std::string> said;
    for (const RankResult& result : results) {
      EXPECT_FALSE(result.status.ok());
      if (result.status.ok()) continue;
      EXPECT_EQ(result.status.exit_code(), kExitBadInput);
      said.push_back(result.status.message());
    }
    return said;
  }
};

void ExpectDone(const std::vector<RankResult>& results, Step step) {
  for (const RankResult& result : results) {
    ASSERT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_EQ(result.step, step);
  }
}

TEST_F(OriginTest, AnAdapterIsNotGoneOnWithOverOtherWeights) {
  ExpectDone(RunAlone(LoraJob(3)), 3);
  ReplaceBase();
  for (const std::string& said : Refusals(RunAlone(LoraJob(6)))) {
    EXPECT_THAT(said, AllOf(HasSubstr("step-00000003-g1"), HasSubstr("over the weights of"),
                            HasSubstr("xxh3:"), HasSubstr("another output.dir")));
  }
  PutBaseBack();
  ExpectDone(RunAlone(LoraJob(6)), 6);
}

TEST_F(OriginTest, AWholeModelGoesOnWhateverItsFilesHold) {
  JobSpec spec = Spec("out");
  spec.train->schedule.max_steps = 3;
  ExpectDone(RunAlone(spec), 3);
  ReplaceBase();
  spec.train->schedule.max_steps = 6;
  ExpectDone(RunAlone(spec), 6);
}

TEST_F(OriginTest, AnotherScaleIsRefusedByNameAndAnotherDropoutIsNot) {
  ExpectDone(RunAlone(LoraJob(3)), 3);
  JobSpec other = LoraJob(6);
  other.train->lora->alpha = 8;
  for (const std::string& said : Refusals(RunAlone(other))) {
    EXPECT_THAT(said, HasSubstr("train.lora.alpha 4.0, the job has 8.0, which makes"));
  }
  other.train->lora = LoraSpec{.r = 2, .alpha = 4, .dropout = 0.1};
  ExpectDone(RunAlone(other), 6);
}

TEST_F(OriginTest, AnotherRankIsNamedAsTheSettingThatItIs) {
  ExpectDone(RunAlone(LoraJob(3)), 3);
  JobSpec other = LoraJob(6);
  other.train->lora->r = 4;
  for (const std::string& said : Refusals(RunAlone(other))) {
    EXPECT_THAT(said, HasSubstr("train.lora.r 2, the job has 4"));
  }
}

TEST_F(OriginTest, AJobWithoutAdaptersSaysWhatItHasFound) {
  ExpectDone(RunAlone(LoraJob(3)), 3);
  for (const std::string& said : Refusals(RunAlone(Spec("out")))) {
    EXPECT_THAT(said, HasSubstr("this job has no train.lora"));
  }
}

// Rank 0 has configuration and tokenizer alone.
TEST_F(OriginTest, ARankWithoutTheFilesComparesWhatAnotherHasFound) {
  ASSERT_TRUE(MakeDirectories(dir_ + "/bare").ok());
  ASSERT_TRUE(WriteModelFiles(dir_ + "/bare", SmallConfig()).ok());
  std::vector<JobSpec> specs = {LoraJob(3), LoraJob(3)};
  specs[0].train->model.path = "bare";
  const std::vector<RankResult> first = RunEach(specs);
  ExpectDone(first, 3);
  Commit(first, 3);
  for (JobSpec& spec : specs) spec.train->schedule.max_steps = 6;
  ExpectDone(RunEach(specs), 6);
  ReplaceBase();
  for (const std::string& said : Refusals(RunEach(specs))) {
    EXPECT_THAT(said, HasSubstr("over the weights of"));
  }
}

TEST(CheckOrigin, TakesWhatTellsNothing) {
  EXPECT_TRUE(CheckOrigin(std::nullopt, Origin()).ok()) << "a version before";
  EXPECT_TRUE(CheckOrigin(std::nullopt, std::nullopt).ok());
  EXPECT_TRUE(CheckOrigin(Origin(""), Origin("xxh3:2")).ok()) << "no rank had the files";
  EXPECT_TRUE(CheckOrigin(Origin(), Origin()).ok());
  EXPECT_FALSE(CheckOrigin(Origin(), Origin("xxh3:2")).ok());
  EXPECT_FALSE(CheckOrigin(Origin(), Origin("xxh3:1", 9)).ok());
}

TEST(CheckOrigin, ALaterVersionsFormEndsTheJobAndADamagedOneIsDamage) {
  AdapterOrigin later = Origin();
  later.form.insert(1, "\"lora.dora\": true, ");
  EXPECT_EQ(CheckOrigin(later, Origin()).code(), StatusCode::kFailedPrecondition);
  AdapterOrigin damaged = Origin();
  damaged.form = "{}";
  EXPECT_EQ(CheckOrigin(damaged, Origin()).code(), StatusCode::kDataLoss);
}

// Segments of two ranks, of which one is of another base.
TEST(AgreeOnSegments, OneRanksFindingIsEverybodys) {
  InProcessGroup group(2);
  std::vector<Status> found(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Communicator> communicator = group.Join(rank);
      ASSERT_TRUE(
          communicator
              ->Form({.rank = rank, .world_size = 2}, Deadline::After(std::chrono::minutes(1)))
              .ok());
      SegmentSpec spec = testing::SmallSpec(rank, 2);
      spec.adapter = Origin(rank == 0 ? "xxh3:1" : "xxh3:2");
      const auto segment = Segment::Create(spec, 1);
      ASSERT_TRUE(segment.ok());
      EXPECT_TRUE(AgreeOnSegments({segment->get()}, Origin(), *communicator).ok())
          << "it holds no state yet";
      (*segment)->Seal(0, {.step = 7});
      found[static_cast<std::size_t>(rank)] =
          AgreeOnSegments({segment->get()}, Origin(), *communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found[0].code(), StatusCode::kUnavailable);
  EXPECT_EQ(found[1].code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(found[1].message(), HasSubstr("the snapshot segment: it holds an adapter"));
}

}  // namespace
}  // namespace muster
