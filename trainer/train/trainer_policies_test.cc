// What a job asks for besides plain steps: where its state comes from, non-finite steps, profiles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "trainer/train/testing/trainer_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PoliciesTest : public TrainerTest {
 protected:
  static void ExpectDone(const std::vector<RankResult>& results) {
    for (const RankResult& result : results) {
      ASSERT_TRUE(result.status.ok()) << result.status.message();
    }
  }

  // Rows of 8 ids each; the word kOddWord is to be predicted in row 9 alone.
  static constexpr int kOddWord = 287;
  JobSpec TokenSpec(const std::string& output) const {
    std::ofstream rows(dir_ + "/rows.bin", std::ios::binary);
    for (int row = 0; row < 24; ++row) {
      for (int at = 0; at < 8; ++at) {
        const int id = row == 9 && at == 7 ? kOddWord : (row * 8 + at) % 256;
        rows << static_cast<char>(id & 0xff) << static_cast<char>(id >> 8);
      }
    }
    JobSpec spec = Spec(output);
    spec.train->data = {.train = {"rows.bin"}, .max_seq_len = 8, .shuffle = false};
    spec.train->schedule.warmup_ratio = 0;
    spec.train->optimizer.lr = 1e-3;
    return spec;
  }

  // A model whose logit of kOddWord is minus infinity: no harm but where that word is the label.
  void ForbidTheOddWord() const {
    const std::size_t hidden = static_cast<std::size_t>(SmallConfig().hidden_size);
    // The first element of every hidden vector stays large and positive.
    EditWeights("model.embed_tokens.weight", [hidden](std::vector<float>& table) {
      for (std::size_t i = 0; i < table.size(); i += hidden) table[i] = 10;
    });
    EditWeights("lm_head.weight", [hidden](std::vector<float>& head) {
      std::fill_n(head.begin() + kOddWord * hidden, hidden, 0.0f);
      head[kOddWord * hidden] = -2e38f;
    });
  }

  // Row 9 is made of kOddWord alone. A logit of about -200 makes it as good as impossible, and an
  // element that the final norm puts to 0 has a gradient beyond fp32 where it is the label.
  void OverflowUnderTheOddWord() const {
    std::fstream rows(dir_ + "/rows.bin", std::ios::in | std::ios::out | std::ios::binary);
    rows.seekp(9 * 8 * 2);
    for (int at = 0; at < 8; ++at) {
      rows << static_cast<char>(kOddWord & 0xff) << static_cast<char>(kOddWord >> 8);
    }
    const std::size_t hidden = static_cast<std::size_t>(SmallConfig().hidden_size);
    EditWeights("model.embed_tokens.weight", [hidden](std::vector<float>& table) {
      for (std::size_t i = 0; i < table.size(); i += hidden) table[i] = table[i + 1] = 10;
    });
    EditWeights("model.norm.weight", [](std::vector<float>& norm) { norm[1] = 0; });
    EditWeights("lm_head.weight", [hidden](std::vector<float>& head) {
      std::fill_n(head.begin() + kOddWord * hidden, hidden, 0.0f);
      head[kOddWord * hidden] = -50;
      head[kOddWord * hidden + 1] = 3e38f;
    });
  }
};

TEST_F(PoliciesTest, ANonFiniteLossEndsTheJobBeforeTheOptimizerSpreadsIt) {
  JobSpec spec = Spec("out");
  spec.train->schedule.warmup_ratio = 0;
  spec.train->optimizer.lr = 1e38;
  for (const RankResult& result : Run(spec)) {
    ASSERT_FALSE(result.status.ok());
    EXPECT_EQ(result.status.kind_name(), "nonfinite");
    EXPECT_EQ(result.status.exit_code(), kExitNonFinite);
    EXPECT_THAT(result.status.message(), HasSubstr("step 2: loss is "));
    EXPECT_THAT(result.status.message(), HasSubstr("lower train.optimizer.lr"));
  }
}

TEST_F(PoliciesTest, ANanInTheModelIsRefusedByNameBeforeAStep) {
  EditWeights("model.layers.1.mlp.down_proj.weight", [](std::vector<float>& weight) {
    weight[5] = std::numeric_limits<float>::quiet_NaN();
  });
  JobSpec spec = Spec("out");
  spec.train->nonfinite = NonFinitePolicy::kSkip;
  int named = 0;
  for (const RankResult& result : Run(spec)) {
    ASSERT_FALSE(result.status.ok());
    if (result.status.kind_name() == "peer_lost") continue;  // the other rank has it
    EXPECT_EQ(result.status.kind_name(), "model");
    EXPECT_THAT(
        result.status.message(),
        HasSubstr("tensor model.layers.1.mlp.down_proj.weight of the model has a number that "
                  "is not finite, in " +
                  dir_ + "/model/model.safetensors"));
    ++named;
  }
  EXPECT_EQ(named, 1);
}

TEST_F(PoliciesTest, ASkippedStepLeavesTheWeightsAndIsCounted) {
  ForbidTheOddWord();
  JobSpec spec = TokenSpec("out");
  spec.train->nonfinite = NonFinitePolicy::kSkip;
  spec.train->checkpoint.every = 100;
  const std::vector<RankResult> results = Run(spec);
  ExpectDone(results);
  const std::vector<Json> metrics = Metrics("out");
  ASSERT_EQ(metrics.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    // Row 9 is in the second step of 8 rows, and again in the fifth: 24 rows are an epoch.
    const bool odd = i == 1 || i == 4;
    EXPECT_EQ(metrics[i]["skipped"], odd) << metrics[i];
    EXPECT_EQ(metrics[i]["loss"].is_null(), odd) << metrics[i];
    EXPECT_EQ(metrics[i]["step"], i + 1);
  }
  int warnings = 0;
  for (const Json& message : results[0].messages) {
    if (message["type"] != "note" || message["severity"] != "warning") continue;
    EXPECT_THAT(message["message"].get<std::string>(), HasSubstr("the step is skipped"));
    ++warnings;
  }
  EXPECT_EQ(warnings, 2);
}

TEST_F(PoliciesTest, TheSameStepEndsAJobThatStops) {
  ForbidTheOddWord();
  const std::vector<RankResult> results = Run(TokenSpec("out"));
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    const TrainStatus& failure = results[rank].status;
    ASSERT_FALSE(failure.ok());
    EXPECT_EQ(failure.kind_name(), "nonfinite");
    EXPECT_THAT(failure.message(), HasSubstr("step 2: loss is inf"));
    // Position 1 of the step's 8 rows.
    EXPECT_THAT(failure.message(),
                HasSubstr("not finite is rank 0: loss of micro-batch 0 (rows 8-9 of rows.bin)"));
    EXPECT_EQ(failure.symptom(), rank != 0);
  }
}

TEST_F(PoliciesTest, AGradientThatOverflowsUnderAFiniteLossIsLaidAtItsRanksDoor) {
  JobSpec spec = TokenSpec("out");
  OverflowUnderTheOddWord();
  spec.train->batch = {.per_rank = 1, .accumulation = 1};
  spec.train->optimizer.lr = 0;
  const std::vector<RankResult> results = Run(spec);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    const TrainStatus& failure = results[rank].status;
    ASSERT_FALSE(failure.ok());
    const std::string message = failure.message();
    EXPECT_THAT(message, HasSubstr("step 5: loss is "));
    EXPECT_THAT(message, Not(HasSubstr("loss is inf")));
    EXPECT_THAT(message, Not(HasSubstr("loss is nan")));
    EXPECT_THAT(message, HasSubstr("not finite is rank 1: gradient of model.norm.weight, "
                                   "micro-batch 0 (row 9 of rows.bin)"));
    EXPECT_EQ(failure.symptom(), rank != 1);
  }
}

TEST_F(PoliciesTest, AStepThatIsSkippedForAGradientChangesNothingElse) {
  JobSpec spec = TokenSpec("out");
  OverflowUnderTheOddWord();
  spec.train->batch = {.per_rank = 1, .accumulation = 1};
  spec.train->optimizer.lr = 0;
  spec.train->nonfinite = NonFinitePolicy::kSkip;
  ExpectDone(Run(spec));
  const std::vector<Json> metrics = Metrics("out");
  ASSERT_EQ(metrics.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(metrics[i]["skipped"], i == 4) << metrics[i];
}

TEST_F(PoliciesTest, AFirstRunInFp16BeginsWithTheScalersOwnScaleAndAResumeKeepsIt) {
  JobSpec spec = Spec("out");
  spec.train->fsdp.mixed_precision = MixedPrecision::kFp16;
  ExpectDone(RunAlone(spec));
  EXPECT_EQ(Metrics("out")[0]["loss_scale"], 65536);
  EXPECT_EQ(Metrics("out")[0]["skipped"], false);
  spec.train->schedule.max_steps = 7;
  ExpectDone(RunAlone(spec));
  EXPECT_EQ(Metrics("out")[6]["loss_scale"], 65536);
}

TEST_F(PoliciesTest, AJobStartsFromAnotherOnesCheckpoint) {
  ExpectDone(RunAlone(Spec("old")));
  std::filesystem::remove(dir_ + "/model/model.safetensors");
  JobSpec spec = Spec("new");
  spec.train->init_from = {.path = "old/checkpoints", .optimizer = true};
  ExpectDone(RunAlone(spec));
  EXPECT_THAT(Said(), HasSubstr("starts from the weights and the optimizer's state of " + dir_ +
                                "/old/checkpoints (its step 6)"));
  EXPECT_LT(Metrics("new")[0]["loss"], Metrics("old")[0]["loss"]);
  EXPECT_EQ(Metrics("new")[0]["step"], 1);
  ASSERT_EQ(Metrics("new").size(), 6u);

  // Again: its own checkpoint wins.
  spec.train->schedule.max_steps = 8;
  ExpectDone(RunAlone(spec));
  EXPECT_THAT(Said(), HasSubstr("going on after step 6"));
  EXPECT_EQ(Metrics("new").size(), 8u);
}

// Each rank took the newest of what it saw itself, and two states became one.
TEST_F(PoliciesTest, AllRanksStartFromTheCheckpointThatRank0Finds) {
  ExpectDone(RunAlone(Spec("old")));
  std::filesystem::create_directory(dir_ + "/new");
  std::filesystem::copy(dir_ + "/old/checkpoints", dir_ + "/new/checkpoints",
                        std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(dir_ + "/old/checkpoints/step-00000006-g1");
  JobSpec spec = Spec("same");
  spec.train->init_from.path = "old/checkpoints";
  ExpectDone(RunEach({spec, spec}));
  spec.train->output_dir = "apart";
  JobSpec other = spec;
  other.train->init_from.path = "new/checkpoints";
  ExpectDone(RunEach({spec, other}));
  EXPECT_EQ(Metrics("apart")[0]["loss"], Metrics("same")[0]["loss"]);

  spec.train->output_dir = "missing";
  for (const RankResult& result : RunEach({other, spec})) {
    ASSERT_FALSE(result.status.ok());
    EXPECT_EQ(result.status.exit_code(), kExitBadInput);
    EXPECT_THAT(result.status.message(), HasSubstr("rank 1: "));
    EXPECT_THAT(result.status.message(), HasSubstr("step-00000006-g1"));
  }
}

TEST_F(PoliciesTest, AllRanksStartFromFilesOfOneContent) {
  std::filesystem::copy(dir_ + "/model/model.safetensors", dir_ + "/mine.safetensors");
  ASSERT_TRUE(WriteRandomWeights(SmallConfig(), 4, dir_ + "/model").ok());
  JobSpec mine = Spec("out");
  JobSpec other = mine;
  mine.train->init_from.path = "mine.safetensors";
  other.train->init_from.path = "model/model.safetensors";
  for (const RankResult& result : RunEach({mine, other})) {
    ASSERT_FALSE(result.status.ok());
    EXPECT_EQ(result.status.exit_code(), kExitBadInput);
    EXPECT_THAT(result.status.message(),
                HasSubstr("rank 1: " + dir_ + "/model/model.safetensors holds other weights"));
  }
}

TEST_F(PoliciesTest, ARankWithoutTheWeightsGetsThemFromOneThatHasThem) {
  JobSpec spec = Spec("all");
  ExpectDone(RunEach({spec, spec}));
  std::filesystem::create_directory(dir_ + "/bare");
  for (const char* file : {"config.json", "generation_config.json", "tokenizer.json"}) {
    std::filesystem::copy(dir_ + "/model/" + file, dir_ + "/bare/" + file);
  }
  spec.train->output_dir = "some";
  JobSpec bare = spec;
  bare.train->model.path = "bare";
  ExpectDone(RunEach({bare, spec}));
  EXPECT_EQ(Metrics("some")[5]["loss"], Metrics("all")[5]["loss"]);
}

TEST_F(PoliciesTest, WeightsThatNoRankHasAreBadInput) {
  std::filesystem::remove(dir_ + "/model/model.safetensors");
  for (const RankResult& result : Run(Spec("out"))) {
    ASSERT_FALSE(result.status.ok());
    EXPECT_EQ(result.status.kind_name(), "model");
    EXPECT_EQ(result.status.exit_code(), kExitBadInput);
    EXPECT_THAT(result.status.message(), HasSubstr("model.safetensors"));
  }
}

TEST_F(PoliciesTest, AnInitFromThatIsNotThereIsBadInput) {
  JobSpec spec = Spec("out");
  spec.train->init_from.path = "nowhere";
  for (const RankResult& result : Run(spec)) {
    ASSERT_FALSE(result.status.ok());
    EXPECT_EQ(result.status.exit_code(), kExitBadInput);
    EXPECT_THAT(result.status.message(), HasSubstr("nowhere"));
  }
}

TEST_F(PoliciesTest, AProfileNamesPhasesRanksAndLayers) {
  JobSpec spec = Spec("out");
  spec.train->profile = {.start = 2, .steps = 2};
  ExpectDone(RunAlone(spec));
  const Json table = ReadJson("out/profile/table.json");
  EXPECT_EQ(table["first_step"], 2);
  EXPECT_EQ(table["steps"], 2);
  ASSERT_EQ(table["ranks"].size(), 2u);
  for (const Json& rank : table["ranks"]) {
    double phases = rank["other"];
    for (const char* phase : {"data", "gather_wait", "forward", "loss", "backward", "reduce_wait",
                              "optimizer", "checkpoint"}) {
      EXPECT_GT(rank[phase], 0.0) << phase << " of " << rank;
      phases += rank[phase].get<double>();
    }
    EXPECT_NEAR(phases, rank["total"].get<double>(), 1e-6);
  }
  EXPECT_EQ(table["layers"].size(), 4u) << "embedding, two blocks and the head";
  EXPECT_THAT(Said(), HasSubstr("profile of steps 2 to 3, ms per step"));
  EXPECT_THAT(Said(), HasSubstr("slowest rank: "));
  EXPECT_THAT(Said(), HasSubstr("slowest layer: "));
  EXPECT_FALSE(ReadJson("out/profile/trace.json")["traceEvents"].empty());
}

TEST_F(PoliciesTest, TheMemoryOfEveryRankAndStageIsWrittenDown) {
  ExpectDone(RunAlone(Spec("out")));
  const Json memory = ReadJson("out/memory.json");
  ASSERT_EQ(memory["ranks"].size(), 2u);
  for (const Json& rank : memory["ranks"]) {
    for (const char* stage : {"load", "train", "export"}) {
      EXPECT_GE(rank[stage]["peak"], rank[stage]["begin"]) << stage;
      EXPECT_GT(rank[stage]["begin"], 1 << 20) << stage;
    }
    // Half the model: master weights, two moments and a gradient in fp32 at least.
    EXPECT_GE(rank["arrays"]["state"], SmallConfig().ParameterCount() / 2 * 16);
  }
}

// The rows have answers of 3 to 14 letters: a mean of the ranks' means would be another number.
TEST_F(PoliciesTest, TheLoggedLossIsTheMeanOverTheLabelsOfAllRanks) {
  JobSpec spec = Spec("two");
  spec.train->schedule.max_steps = 3;
  spec.train->fsdp.mixed_precision = MixedPrecision::kFp32;
  ExpectDone(RunAlone(spec));
  ranks_ = 1;
  spec.train->batch.accumulation = 4;
  spec.train->output_dir = "one";
  ExpectDone(RunAlone(spec));
  for (std::size_t i = 0; i < 3; ++i) {
    const double one = Metrics("one")[i]["loss"];
    EXPECT_NEAR(Metrics("two")[i]["loss"].get<double>(), one, 1e-5 * one) << "step " << i + 1;
    EXPECT_EQ(Metrics("two")[i]["tokens"], Metrics("one")[i]["tokens"]);
  }
}

// Nor is it the mean of the micro-batches' means, which another split of the same rows would
// change.
TEST_F(PoliciesTest, EverySplitIntoMicroBatchesHasTheSameLossesAndGradients) {
  ranks_ = 1;
  std::vector<std::vector<Json>> runs;
  for (const int per_rank : {8, 4, 1}) {
    JobSpec spec = Spec("of-" + std::to_string(per_rank));
    spec.train->schedule.max_steps = 3;
    spec.train->fsdp.mixed_precision = MixedPrecision::kFp32;
    spec.train->batch = {.per_rank = per_rank, .accumulation = 8 / per_rank};
    ExpectDone(RunAlone(spec));
    runs.push_back(Metrics(spec.train->output_dir));
    ASSERT_EQ(runs.back().size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      for (const char* key : {"loss", "grad_norm"}) {
        const double whole = runs[0][i][key];
        EXPECT_NEAR(runs.back()[i][key].get<double>(), whole, 1e-4 * whole)
            << key << " of step " << i + 1 << " in micro-batches of " << per_rank;
      }
      EXPECT_EQ(runs.back()[i]["sample_chain"], runs[0][i]["sample_chain"]);
    }
  }
}

// The model's own files say where a text ends, and not where a turn does.
TEST_F(PoliciesTest, AModelThatWasTrainedOnConversationsNamesTheEndOfTheirTurns) {
  ASSERT_TRUE(WriteFileAtomically(dir_ + "/model/generation_config.json",
                                  R"({"eos_token_id": 256, "temperature": 0.6})")
                  .ok());
  ExpectDone(RunAlone(Spec("chats")));
  const Json want = {{"eos_token_id", {kEndOfTextId, kImEndId}}, {"temperature", 0.6}};
  EXPECT_EQ(ReadJson("chats/model/generation_config.json"), want);
  JobSpec adapter = Spec("adapter");
  adapter.train->lora = LoraSpec{};
  ExpectDone(RunAlone(adapter));
  EXPECT_EQ(ReadJson("adapter/adapter/generation_config.json"), want);
}

TEST_F(PoliciesTest, AModelThatWasTrainedOnTextEndsItsTextsWhereItDid) {
  const std::string own = R"({"eos_token_id": 256})";
  ASSERT_TRUE(WriteFileAtomically(dir_ + "/model/generation_config.json", own).ok());
  std::ofstream(dir_ + "/text.jsonl") << R"({"text": "some words"})"
                                      << "\n"
                                      << R"({"text": "and more"})"
                                      << "\n";
  JobSpec spec = Spec("text");
  spec.train->data.train = {"text.jsonl"};
  ExpectDone(RunAlone(spec));
  EXPECT_EQ(*ReadFile(dir_ + "/text/model/generation_config.json"), own);
}

TEST_F(PoliciesTest, SettingsThatChangeNothingHereAreSaid) {
  JobSpec spec = Spec("out");
  spec.train->fsdp.strategy = ShardingStrategy::kHybridShard;
  ExpectDone(RunAlone(spec));
  EXPECT_THAT(Said(),
              HasSubstr("info: train.fsdp.strategy hybrid_shard on one node is full_shard"));
}

}  // namespace
}  // namespace muster
