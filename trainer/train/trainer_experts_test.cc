// Runs of a model with experts: what is written of their loads, and said of a router.
#include <gmock/gmock.h>

#include <algorithm>

#include "trainer/model/families/read_config.h"
#include "trainer/train/router_watch.h"
#include "trainer/train/testing/trainer_testing.h"

namespace muster {
namespace {

using testing::HasSubstr;

class TrainerOfExperts : public TrainerTest {
 protected:
  void SetUp() override {
    TrainerTest::SetUp();
    const Json json = {{"architectures", {"MixtralForCausalLM"}},
                       {"model_type", "mixtral"},
                       {"hidden_size", 32},
                       {"intermediate_size", 24},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"vocab_size", 288},
                       {"num_local_experts", 3},
                       {"num_experts_per_tok", 1}};
    const auto config = ParseModelConfig(json.dump(), "config.json");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    ASSERT_TRUE(WriteModelFiles(dir_ + "/model", *config).ok());
    ASSERT_TRUE(WriteRandomWeights(*config, 3, dir_ + "/model").ok());
  }

  std::vector<Json> Experts(const std::string& output) const {
    std::ifstream in(dir_ + "/" + output + "/experts.jsonl");
    std::vector<Json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
  }
};

// A router of zeros gives every token the same expert, and beside adapters it stays so.
TEST_F(TrainerOfExperts, LoadsAreWrittenAndACollapsedRouterIsAWarning) {
  EditWeights("model.layers.1.block_sparse_moe.gate.weight",
              [](std::vector<float>& values) { std::fill(values.begin(), values.end(), 0.0f); });
  JobSpec spec = Spec("out");
  spec.train->lora.emplace().target_modules = {"q_proj"};
  spec.train->schedule.max_steps = RouterWatch::kTakenSteps + 1;
  spec.train->logging_every = 10;
  const std::vector<RankResult> results = Run(spec);
  std::vector<std::string> warnings;
  for (const RankResult& result : results) {
    ASSERT_TRUE(result.status.ok()) << result.status.message();
    for (const Json& message : result.messages) {
      if (message["type"] == "note" && message["severity"] == "warning")
        warnings.push_back(message["message"]);
    }
  }
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("the router of layer 1 gives expert "));
  EXPECT_THAT(warnings[0], HasSubstr(" 100 % of the tokens, for 20 steps; the routers are frozen"));
  for (const Json& line : Metrics("out")) {
    const Json& load = line["experts"];
    EXPECT_EQ(load["layers"], (std::vector<int>{0, 1}));
    EXPECT_EQ(load["largest_share"][1], 1);
    EXPECT_EQ(load["entropy"][1], 0);
    EXPECT_EQ(load["idle"][1], 2);
    EXPECT_LT(load["largest_share"][0], 1);
  }
  const std::vector<Json> experts = Experts("out");
  ASSERT_EQ(experts.size(), 3u) << "steps 10, 20 and 21";
  EXPECT_EQ(experts[2]["step"], 21);
  EXPECT_EQ(experts[2]["layers"]["1"].size(), 3u);
}

TEST_F(TrainerOfExperts, AdaptersOnExpertsAreTrainedAndExported) {
  JobSpec spec = Spec("out");
  LoraSpec& lora = spec.train->lora.emplace();
  lora.r = 2;
  lora.target_modules = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
  for (const bool packed : {false, true}) {
    spec.train->output_dir = packed ? "packed" : "out";
    if (packed) spec.train->quantization.emplace();
    for (const RankResult& result : Run(spec))
      ASSERT_TRUE(result.status.ok()) << result.status.message();
    const std::vector<Json> metrics = Metrics(spec.train->output_dir);
    EXPECT_LT(metrics[5]["loss"], metrics[0]["loss"]);
    const Json config = ReadJson(spec.train->output_dir + "/adapter/adapter_config.json");
    EXPECT_EQ(config["target_parameters"], lora.target_modules);
  }
}

}  // namespace
}  // namespace muster
