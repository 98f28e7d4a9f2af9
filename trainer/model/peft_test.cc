#include "trainer/model/peft.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/base/json.h"
#include "trainer/model/adapters.h"

namespace muster {
namespace {

class Peft : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("muster-peft-" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& text) { std::ofstream(dir_ / kAdapterConfig) << text; }
  std::string Refusal(const std::string& extra) {
    Write(R"({"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"])" + extra + "}");
    return ReadAdapterConfig(dir_.string()).status().message();
  }

  std::filesystem::path dir_;
};

LoraSpec Spec() {
  LoraSpec spec;
  spec.r = 4;
  spec.alpha = 6;
  spec.bias = LoraBias::kAll;
  spec.target_modules = {"q_proj", "down_proj"};
  spec.modules_to_save = {"embed_tokens"};
  return spec;
}

TEST_F(Peft, ReadsWhatItWrites) {
  Write(AdapterConfigText(Spec(), "models/base"));
  EXPECT_TRUE(CheckAdapterConfig(dir_.string(), Spec(), {}).ok());
  const auto read = ReadAdapterConfig(dir_.string());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->r, 4);
  EXPECT_EQ(read->alpha, 6);
  EXPECT_EQ(read->target_modules, Spec().target_modules);
}

TEST_F(Peft, KeepsExpertsApartAsParameters) {
  LoraSpec spec = Spec();
  spec.target_modules = {"q_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
  const auto json = nlohmann::json::parse(AdapterConfigText(spec, "models/base"));
  EXPECT_EQ(json["target_modules"], (std::vector<std::string>{"q_proj"}));
  EXPECT_EQ(json["target_parameters"],
            (std::vector<std::string>{"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}));
  Write(json.dump());
  EXPECT_TRUE(CheckAdapterConfig(dir_.string(), spec, {}).ok());
  Write(R"({"target_modules": null, "target_parameters": ["experts.down_proj"]})");
  const auto alone = ReadAdapterConfig(dir_.string());
  ASSERT_TRUE(alone.ok()) << alone.status().ToString();
  EXPECT_EQ(alone->target_modules, std::vector<std::string>{"mlp.experts.down_proj"});
  spec.target_modules = {"mlp.experts.down_proj"};
  const auto none = nlohmann::json::parse(AdapterConfigText(spec, "models/base"));
  EXPECT_EQ(none["target_modules"], nlohmann::json::array());
  EXPECT_FALSE(nlohmann::json::parse(AdapterConfigText(Spec(), "b")).contains("target_parameters"));
  EXPECT_NE(Refusal(R"(, "target_parameters": ["mlp.gate.weight"])").find("mlp.gate.weight"),
            std::string::npos);
}

TEST_F(Peft, NamesTheKeyThatIsOfAnotherType) {
  Write(R"({"r": 8, "target_modules": ".*q_proj"})");
  EXPECT_NE(ReadAdapterConfig(dir_.string()).status().message().find("is the regular expression"),
            std::string::npos);
  Write(R"({"r": "eight", "target_modules": ["q_proj"]})");
  EXPECT_NE(ReadAdapterConfig(dir_.string()).status().message().find("r is \"eight\", no number"),
            std::string::npos);
  Write("[]");
  EXPECT_NE(ReadAdapterConfig(dir_.string()).status().message().find("is no JSON object"),
            std::string::npos);
}

TEST_F(Peft, TakesModulesInAnyOrderAndDefaults) {
  Write(R"({"target_modules": ["up_proj", "q_proj"]})");
  const auto read = ReadAdapterConfig(dir_.string());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->r, 8);
  EXPECT_EQ(LoraScale(*read), 1);
  EXPECT_EQ(read->target_modules, (std::vector<std::string>{"q_proj", "up_proj"}));
  Write(R"({"target_modules": "all-linear", "r": 2})");
  EXPECT_EQ(ReadAdapterConfig(dir_.string())->target_modules, kAllLinear);
}

// All-linear to PEFT, which writes the names that the model has.
TEST_F(Peft, TakesAllModulesOfAFusedModelForAllLinear) {
  LoraSpec spec;
  ModelConfig config;
  config.architecture = "Phi3ForCausalLM";
  config.num_hidden_layers = 1;
  const std::vector<UnitTensor> trained = SplitModel(config, 1, spec).trained[1].tensors;
  Write(PeftDirectory(trained, spec, "models/base").config_text);
  EXPECT_EQ(ReadAdapterConfig(dir_.string())->target_modules,
            (std::vector<std::string>{"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}));
  EXPECT_TRUE(CheckAdapterConfig(dir_.string(), spec, trained).ok());
  spec.target_modules = {"qkv_proj"};
  EXPECT_FALSE(CheckAdapterConfig(dir_.string(), spec, trained).ok());
}

TEST_F(Peft, RefusesOtherKindsByName) {
  EXPECT_NE(Refusal(R"(, "use_dora": true)").find("use_dora"), std::string::npos);
  EXPECT_NE(Refusal(R"(, "rank_pattern": {"q_proj": 4})").find("rank_pattern"), std::string::npos);
  EXPECT_NE(Refusal(R"(, "peft_type": "IA3")").find("IA3"), std::string::npos);
  EXPECT_NE(Refusal(R"(, "target_modules": ["q_proj", "lm_head"])").find("lm_head"),
            std::string::npos);
  EXPECT_NE(Refusal(R"(, "r": "eight")").find("adapter_config.json"), std::string::npos);
  EXPECT_NE(Refusal(R"(, "r": 0)").find("r is 0"), std::string::npos);
  EXPECT_EQ(Refusal(R"(, "use_dora": false, "rank_pattern": {}, "layers_pattern": null)"), "");
}

// Those that PEFT takes out of the base's own weights, or that are for some tokens only.
TEST_F(Peft, RefusesAdaptersThatChangeTheBaseOrOnlySomeTokens) {
  for (const char* way : {"pissa", "pissa_niter_4", "olora", "corda", "loftq", "eva", "lora_ga"}) {
    const std::string refusal = Refusal(R"(, "init_lora_weights": ")" + std::string(way) + "\"");
    EXPECT_NE(refusal.find("init_lora_weights \"" + std::string(way)), std::string::npos) << way;
  }
  for (const char* plain : {"true", "false", "null", R"("gaussian")", R"("orthogonal")"}) {
    EXPECT_EQ(Refusal(R"(, "init_lora_weights": )" + std::string(plain)), "") << plain;
  }
  EXPECT_NE(Refusal(R"(, "alora_invocation_tokens": [1, 2])").find("alora_invocation_tokens"),
            std::string::npos);
}

TEST_F(Peft, RefusesKeysThatNobodyKnowsWhereTheySaySomething) {
  for (const char* key :
       {"use_bdlora", "arrow_config", "monteclora_config", "velora_config", "a_key_of_next_year"}) {
    const std::string quoted = ", \"" + std::string(key) + "\": ";
    EXPECT_NE(Refusal(quoted + R"({"x": 1})").find(key), std::string::npos) << key;
    EXPECT_NE(Refusal(quoted + "0.5").find(key), std::string::npos) << key;
    EXPECT_EQ(Refusal(quoted + "null") + Refusal(quoted + "false") + Refusal(quoted + "{}"), "")
        << key;
  }
  EXPECT_NE(Refusal(R"(, "bias": "some")").find("bias is some"), std::string::npos);
}

// What PEFT 0.21 writes beside what is acted on.
TEST_F(Peft, TakesAPlainConfigurationOfPeft) {
  EXPECT_EQ(Refusal(R"(, "alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null,
    "auto_mapping": {"base_model_class": "LlamaForCausalLM"}, "base_model_name_or_path": "a/b",
    "bias": "none", "corda_config": null, "ensure_weight_tying": false, "eva_config": null,
    "exclude_modules": null, "fan_in_fan_out": false, "inference_mode": true,
    "init_lora_weights": true, "kasa_config": null, "layer_replication": null,
    "layers_pattern": null, "layers_to_transform": null, "loftq_config": {}, "lora_alpha": 16,
    "lora_bias": false, "lora_dropout": 0.05, "lora_ga_config": null, "megatron_config": null,
    "megatron_core": "megatron.core", "modules_to_save": null, "monteclora_config": null,
    "peft_version": "0.21.2", "qalora_group_size": 16, "rank_pattern": {}, "revision": "main",
    "target_parameters": null, "task_type": "CAUSAL_LM", "trainable_token_indices": null,
    "use_bdlora": null, "use_dora": false, "use_qalora": false, "use_rslora": false,
    "velora_config": null)"),
            "");
}

TEST_F(Peft, NamesTheFirstDifferenceToTheJob) {
  Write(AdapterConfigText(Spec(), "base"));
  const auto difference = [&](auto change) {
    LoraSpec other = Spec();
    change(&other);
    return CheckAdapterConfig(dir_.string(), other, {}).message();
  };
  EXPECT_NE(difference([](LoraSpec* s) { s->r = 8; }).find("r is 4, the job's lora has 8"),
            std::string::npos);
  EXPECT_NE(difference([](LoraSpec* s) { s->rslora = true; }).find("scale"), std::string::npos);
  EXPECT_NE(difference([](LoraSpec* s) { s->target_modules.pop_back(); }).find("target_modules"),
            std::string::npos);
  EXPECT_NE(difference([](LoraSpec* s) { s->bias = LoraBias::kNone; }).find("bias is all"),
            std::string::npos);
}

}  // namespace
}  // namespace muster
