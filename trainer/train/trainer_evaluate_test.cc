// Evaluations of a training run: when they are done, and what follows from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "trainer/train/testing/trainer_testing.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EvaluationTest : public TrainerTest {
 protected:
  static void ExpectDone(const std::vector<RankResult>& results) {
    for (const RankResult& result : results) {
      ASSERT_TRUE(result.status.ok()) << result.status.message();
    }
  }

  // Training is on rows that answer with x; the more it learns, the less likely is what these say.
  JobSpec Contradicted(const std::string& output) const {
    std::ofstream rows(dir_ + "/other.jsonl");
    for (int i = 0; i < 7; ++i) {
      rows << Json{{"prompt", "count " + std::to_string(i)}, {"completion", std::string(30, 'z')}}
           << "\n";
    }
    JobSpec spec = Spec(output);
    spec.train->data.eval = {"other.jsonl"};
    spec.train->eval.every = 1;
    // The first step changes nothing, the others much.
    spec.train->schedule.kind = "constant";
    spec.train->schedule.warmup_steps = 3;
    spec.train->optimizer.lr = 0.05;
    return spec;
  }

  std::vector<Json> Lines(const std::string& file) const {
    std::ifstream in(dir_ + "/" + file);
    std::vector<Json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  std::vector<Step> EvaluatedSteps(const std::string& output) const {
    std::vector<Step> steps;
    for (const Json& line : Lines(output + "/eval.jsonl")) steps.push_back(line["step"]);
    return steps;
  }
  // The manifests of the committed checkpoints, in the order of a resume.
  std::vector<CheckpointManifest> Committed(const std::string& output) const {
    return FindManifests(dir_ + "/" + output + "/checkpoints")->manifests;
  }
  std::vector<Step> CommittedSteps(const std::string& output) const {
    std::vector<Step> steps;
    for (const CheckpointManifest& each : Committed(output)) steps.push_back(each.step);
    return steps;
  }
  std::vector<float> Head(const std::string& model) const {
    const SafetensorsModel file = *SafetensorsModel::Open(dir_ + "/" + model);
    std::vector<float> values(static_cast<std::size_t>(file.Find("lm_head.weight")->count()));
    EXPECT_TRUE(file.ReadFloats("lm_head.weight", 0, static_cast<std::int64_t>(values.size()),
                                values.data())
                    .ok());
    return values;
  }
};

TEST_F(EvaluationTest, IsDoneEverySoManyStepsAndAtTheEndAndChangesNothing) {
  JobSpec spec = Spec("plain");
  ExpectDone(RunAlone(spec));
  spec.train->output_dir = "evaluated";
  spec.train->data.eval = {"rows.jsonl"};
  spec.train->eval = {.every = 4, .at_start = true, .keep_best = false};
  ExpectDone(RunAlone(spec));
  EXPECT_THAT(EvaluatedSteps("evaluated"), ElementsAre(0, 4, 6));
  EXPECT_THAT(Said(), HasSubstr("evaluates on 12 rows every 4 steps"));
  EXPECT_THAT(Said(), HasSubstr("eval 4/6  loss "));
  const std::vector<Json> plain = Metrics("plain"), evaluated = Metrics("evaluated");
  ASSERT_EQ(evaluated.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(evaluated[i]["loss"], plain[i]["loss"]);
  EXPECT_EQ(Head("evaluated/model"), Head("plain/model"));
  const std::vector<Json> found = Lines("evaluated/eval.jsonl");
  EXPECT_LT(found[2]["loss"], found[0]["loss"]) << "what is trained on is learned";
  EXPECT_GT(found[2]["accuracy"], found[0]["accuracy"]);
  EXPECT_EQ(found[2]["best_step"], 6);
  EXPECT_GT(found[0]["tokens"], 0);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/plain/eval.jsonl"));
}

TEST_F(EvaluationTest, NumbersAreThoseOfAnyNumberOfRanks) {
  std::vector<Json> found;
  for (const int ranks : {1, 2, 3}) {
    ranks_ = ranks;
    JobSpec spec = Contradicted("of-" + std::to_string(ranks));
    spec.train->eval.at_start = true;
    spec.train->eval.samples = {"count 1", "and then?", "why"};
    spec.train->eval.max_new_tokens = 4;
    spec.train->schedule.max_steps = 3;
    spec.train->optimizer.lr = 1e-3;
    ExpectDone(RunAlone(spec));
    const Json first = Lines("of-" + std::to_string(ranks) + "/eval.jsonl")[0];
    const std::vector<Json> samples = Lines("of-" + std::to_string(ranks) + "/samples.jsonl");
    ASSERT_EQ(samples.size(), 3u * 4u);
    EXPECT_EQ(samples[1]["prompt"], "and then?");
    EXPECT_LE(samples[1]["tokens"], 4);
    EXPECT_EQ(samples[11]["step"], 3);
    found.push_back({{"loss", first["loss"]},
                     {"tokens", first["tokens"]},
                     {"accuracy", first["accuracy"]},
                     {"texts", {samples[0]["text"], samples[1]["text"], samples[2]["text"]}}});
  }
  for (const Json& of_some : found) {
    EXPECT_NEAR(of_some["loss"].get<double>(), found[0]["loss"].get<double>(), 1e-9);
    EXPECT_EQ(of_some["tokens"], found[0]["tokens"]);
    EXPECT_EQ(of_some["accuracy"], found[0]["accuracy"]);
    EXPECT_EQ(of_some["texts"], found[0]["texts"]);
  }
}

TEST_F(EvaluationTest, RowsThatAreSetAsideAreEvaluated) {
  JobSpec spec = Spec("out");
  spec.train->data.eval_ratio = 0.25;
  ExpectDone(RunAlone(spec));
  EXPECT_THAT(EvaluatedSteps("out"), ElementsAre(3, 6)) << "as often as it saves";
  EXPECT_THAT(Said(), HasSubstr("evaluates on 3 rows"));
}

TEST_F(EvaluationTest, TheBestCheckpointIsSavedKeptAndExported) {
  JobSpec spec = Contradicted("out");
  spec.train->checkpoint = {.every = 2, .keep = 1};
  ExpectDone(RunAlone(spec));
  const Step best = Lines("out/eval.jsonl").back()["best_step"];
  ASSERT_LT(best, 5) << "what is learned contradicts what is evaluated";
  EXPECT_THAT(CommittedSteps("out"), ElementsAre(6, best));
  const std::vector<CheckpointManifest> committed = Committed("out");
  const Json found = Lines("out/eval.jsonl")[static_cast<std::size_t>(best - 1)];
  EXPECT_EQ(committed[1].eval_loss, found["loss"].get<double>());
  EXPECT_GT(*committed[0].eval_loss, *committed[1].eval_loss);
  const std::vector<float> last = Head("out/model");
  // The same training goes on from where it ended, and has but to export.
  spec.train->output_export = ExportedState::kBest;
  ExpectDone(RunAlone(spec));
  EXPECT_NE(Head("out/model"), last);
  EXPECT_THAT(Said(), HasSubstr("exports the state of step " + std::to_string(best)));
  EXPECT_EQ(Metrics("out").size(), 6u);
}

// As after a fault before it was written.
TEST_F(EvaluationTest, ABestCheckpointThatIsLostCountsNoMore) {
  JobSpec spec = Contradicted("out");
  spec.train->checkpoint = {.every = 1, .keep = 6};
  spec.train->schedule.max_steps = 4;
  ExpectDone(RunAlone(spec));
  std::vector<CheckpointManifest> committed = Committed("out");
  const CheckpointManifest lost = *BestOf(committed);
  ASSERT_LT(lost.step, 4) << "what is learned contradicts what is evaluated";
  std::filesystem::remove_all(dir_ + "/out/checkpoints/" + lost.directory);
  const CheckpointManifest best = *BestOf(committed = Committed("out"));
  spec.train->schedule.max_steps = 6;
  spec.train->output_export = ExportedState::kBest;
  ExpectDone(RunAlone(spec));
  EXPECT_EQ(Lines("out/eval.jsonl").back()["best_step"], best.step);
  EXPECT_EQ(Lines("out/eval.jsonl").back()["best_loss"], *best.eval_loss);
  EXPECT_THAT(Said(), HasSubstr("of step " + std::to_string(lost.step) + ", is not there"));
  EXPECT_THAT(Said(), HasSubstr("exports the state of step " + std::to_string(best.step)));
}

TEST_F(EvaluationTest, WithoutKeepBestTheNewestAloneAreKept) {
  JobSpec spec = Contradicted("out");
  spec.train->checkpoint = {.every = 2, .keep = 1};
  spec.train->eval.keep_best = false;
  ExpectDone(RunAlone(spec));
  EXPECT_THAT(CommittedSteps("out"), ElementsAre(6));
}

TEST_F(EvaluationTest, TrainingEndsWhereNothingGetsBetter) {
  JobSpec spec = Contradicted("out");
  // So much is never gained.
  spec.train->eval.early_stop = {.patience = 2, .min_delta = 100};
  ExpectDone(RunAlone(spec));
  EXPECT_THAT(EvaluatedSteps("out"), ElementsAre(1, 2, 3));
  EXPECT_EQ(Metrics("out").size(), 3u);
  EXPECT_THAT(Said(), HasSubstr("training ends after step 3 of 6: 2 evaluations in a row"));
  EXPECT_EQ(CommittedSteps("out").front(), 3);
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/out/model/config.json"));
  // Nothing is trained by who begins it again.
  ExpectDone(RunAlone(spec));
  EXPECT_EQ(Metrics("out").size(), 3u);
}

TEST_F(EvaluationTest, AResumedTrainingGoesOnCounting) {
  JobSpec spec = Contradicted("out");
  // So much is never gained.
  spec.train->eval.early_stop = {.patience = 2, .min_delta = 100};
  spec.train->schedule.max_steps = 2;
  ExpectDone(RunAlone(spec));
  EXPECT_EQ(Lines("out/eval.jsonl").back()["without_better"], 1);
  spec.train->schedule.max_steps = 6;
  ExpectDone(RunAlone(spec));
  EXPECT_THAT(EvaluatedSteps("out"), ElementsAre(1, 2, 3));
}

// Asked to stop, a job saves its state without the evaluation that was due.
TEST_F(EvaluationTest, WhatWasNotEvaluatedIsEvaluatedAfterAResume) {
  JobSpec spec = Spec("out");
  spec.train->schedule.max_steps = 2;
  ExpectDone(RunAlone(spec));
  spec.train->data.eval = {"rows.jsonl"};
  spec.train->eval.every = 2;
  spec.train->schedule.max_steps = 4;
  ExpectDone(RunAlone(spec));
  EXPECT_THAT(EvaluatedSteps("out"), ElementsAre(2, 4));
  std::vector<CheckpointManifest> evaluated = Committed("out");
  std::erase_if(evaluated, [](const CheckpointManifest& each) { return !each.eval_loss; });
  ASSERT_EQ(evaluated.size(), 2u) << "step 2 once more, with what was found";
  EXPECT_EQ(evaluated[1].step, 2);
}

TEST_F(EvaluationTest, UnderAGuardianEveryShardTellsWhatWasFound) {
  JobSpec spec = Contradicted("out");
  spec.train->schedule.max_steps = 2;
  const std::vector<RankResult> results = Run(spec);
  ExpectDone(results);
  const Json first = Lines("out/eval.jsonl")[0];
  for (const RankResult& result : results) {
    std::vector<Json> losses;
    for (const Json& message : result.messages) {
      if (message["type"] == "shard_written") losses.push_back(message["eval_loss"]);
    }
    ASSERT_EQ(losses.size(), 2u);
    EXPECT_EQ(losses[0], first["loss"]);
  }
}

TEST_F(EvaluationTest, AProgressPageShowsTheEvaluation) {
  ranks_ = 1;
  JobSpec spec = Spec("out");
  spec.train->data.eval = {"rows.jsonl"};
  spec.train->eval.at_start = true;
  spec.train->eval.samples = {"count"};
  spec.train->eval.max_new_tokens = 30;
  const Watched run = RunUntil(
      spec,
      [](const ProgressValues& seen) {
        return seen.phase_seconds[static_cast<std::size_t>(TrainPhase::kEvaluating)] > 0;
      },
      [] {});
  EXPECT_TRUE(run.result.status.ok());
  EXPECT_GT(run.seen.phase_seconds[static_cast<std::size_t>(TrainPhase::kEvaluating)], 0);
}

TEST_F(EvaluationTest, APromptThatIsTooLongIsRefusedBeforeAnythingIsTrained) {
  JobSpec spec = Contradicted("out");
  spec.train->eval.samples = {std::string(100, 'a')};
  for (const RankResult& result : RunAlone(spec)) {
    ASSERT_FALSE(result.status.ok());
    EXPECT_EQ(result.status.kind_name(), "config");
    EXPECT_THAT(result.status.message(), HasSubstr("train.eval.samples: prompt 1"));
  }
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/out/metrics.jsonl"));
}

}  // namespace
}  // namespace muster
