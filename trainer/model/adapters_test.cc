#include "trainer/model/adapters.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trainer/model/families/units.h"
#include "trainer/model/testing/model_testing.h"
#include "trainer/model/train_check.h"

namespace muster {
namespace {

ModelConfig Qwen2() {
  ModelConfig config = OddConfig(2);
  config.qkv_bias = true;
  return config;
}

LoraSpec Spec(std::vector<std::string> targets, std::vector<std::string> whole = {}) {
  LoraSpec spec;
  spec.r = 4;
  spec.target_modules = std::move(targets);
  spec.modules_to_save = std::move(whole);
  return spec;
}

std::vector<std::string> NamesOf(const std::vector<UnitSpec>& units) {
  std::vector<std::string> names;
  for (const UnitSpec& unit : units) {
    for (const UnitTensor& tensor : unit.tensors) names.push_back(tensor.name);
  }
  return names;
}

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(SplitModel, TrainsEverythingWithoutAdapters) {
  const SplitUnits split = SplitModel(OddConfig(3), 2, std::nullopt);
  EXPECT_EQ(split.trained.size(), 4u);
  EXPECT_TRUE(split.frozen.empty());
}

TEST(SplitModel, PutsTheAdaptersOfAMatrixBehindOneAnother) {
  const SplitUnits split = SplitModel(OddConfig(1), 1, Spec({"q_proj", "v_proj"}));
  ASSERT_EQ(split.trained.size(), 3u);
  ASSERT_EQ(split.frozen.size(), 3u);
  EXPECT_TRUE(split.trained[0].tensors.empty());
  EXPECT_TRUE(split.trained[2].tensors.empty());
  const std::vector<UnitTensor>& tensors = split.trained[1].tensors;
  ASSERT_EQ(tensors.size(), 4u);
  const std::string path = "model.layers.0.self_attn.";
  EXPECT_EQ(tensors[0].name, path + "q_proj.lora_A.weight");
  EXPECT_EQ(tensors[1].name, path + "v_proj.lora_A.weight");
  EXPECT_EQ(tensors[2].name, path + "q_proj.lora_B.weight");
  EXPECT_EQ(tensors[3].name, path + "v_proj.lora_B.weight");
  EXPECT_EQ(tensors[0].shape, (std::vector<std::int64_t>{4, 37}));
  EXPECT_EQ(tensors[2].shape, (std::vector<std::int64_t>{40, 4}));
  EXPECT_EQ(tensors[3].shape, (std::vector<std::int64_t>{20, 4}));
  EXPECT_FALSE(tensors[0].joined);
  EXPECT_TRUE(tensors[1].joined);
  EXPECT_FALSE(tensors[2].joined);
  EXPECT_TRUE(tensors[3].joined);
  EXPECT_EQ(NamesOf(split.frozen).size(), 12u);
}

TEST(SplitModel, KeepsBlocksOfAUnitApart) {
  const SplitUnits split = SplitModel(OddConfig(2), 2, Spec({"down_proj"}));
  const std::vector<UnitTensor>& tensors = split.trained[1].tensors;
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[1].block, 0);
  EXPECT_EQ(tensors[2].block, 1);
  for (const UnitTensor& tensor : tensors) EXPECT_FALSE(tensor.joined) << tensor.name;
}

TEST(SplitModel, TrainsWholeModulesAndBiasesThatAreNamed) {
  LoraSpec spec = Spec({"o_proj"}, {"embed_tokens", "model.norm"});
  spec.bias = LoraBias::kAll;
  const SplitUnits split = SplitModel(Qwen2(), 1, spec);
  const std::vector<std::string> trained = NamesOf(split.trained), frozen = NamesOf(split.frozen);
  for (const char* name :
       {"model.embed_tokens.weight", "model.norm.weight", "model.layers.1.self_attn.k_proj.bias"}) {
    EXPECT_TRUE(Has(trained, name)) << name;
    EXPECT_FALSE(Has(frozen, name)) << name;
  }
  EXPECT_TRUE(Has(frozen, "lm_head.weight"));
  EXPECT_TRUE(Has(frozen, "model.layers.0.input_layernorm.weight"));
  spec.bias = LoraBias::kLoraOnly;
  EXPECT_FALSE(
      Has(NamesOf(SplitModel(Qwen2(), 1, spec).trained), "model.layers.1.self_attn.k_proj.bias"));
}

// As PEFT takes it: "norm" is the end of every norm's name.
TEST(SplitModel, TrainsEveryModuleWhoseNameEndsSo) {
  const std::vector<std::string> trained =
      NamesOf(SplitModel(Qwen2(), 1, Spec({"o_proj"}, {"norm"})).trained);
  for (const char* name : {"model.norm.weight", "model.layers.1.input_layernorm.weight",
                           "model.layers.0.post_attention_layernorm.weight"}) {
    EXPECT_TRUE(Has(trained, name)) << name;
  }
}

TEST(PeftName, IsWithinTheAdaptersModuleForABiasThatHasOne) {
  const UnitTensor bias{
      .name = "model.layers.0.self_attn.q_proj.bias", .shape = {40}, .role = TensorRole::kQkvBias};
  EXPECT_EQ(PeftName(bias, Spec({"q_proj"})),
            "base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias");
  EXPECT_EQ(PeftName(bias, Spec({"o_proj"})),
            "base_model.model.model.layers.0.self_attn.q_proj.bias");
}

TEST(LoraOf, CutsTheRowsOfJoinedMatrices) {
  LoraSpec spec = Spec({"k_proj", "v_proj", "up_proj"});
  spec.alpha = 6;
  const BlockLora lora = LoraOf(OddConfig(1), spec);
  ASSERT_EQ(lora.qkv.segments.size(), 2u);
  EXPECT_EQ(lora.qkv.segments[0].begin, 40);
  EXPECT_EQ(lora.qkv.segments[1].begin, 60);
  EXPECT_EQ(lora.qkv.segments[1].rows, 20);
  EXPECT_EQ(lora.qkv.hidden_width(), 8);
  ASSERT_EQ(lora.gate_up.segments.size(), 1u);
  EXPECT_EQ(lora.gate_up.segments[0].begin, 43);
  EXPECT_TRUE(lora.down.segments.empty());
  EXPECT_EQ(lora.qkv.scale, 1.5);
  EXPECT_EQ(lora.qkv.dropout, 0);
  spec.rslora = true;
  spec.dropout = 0.25;
  EXPECT_EQ(LoraOf(OddConfig(1), spec).down.dropout, 0.25);
  EXPECT_EQ(LoraOf(OddConfig(1), spec).qkv.scale, 3);
}

TEST(CheckLora, NamesWhatTheModelHasNot) {
  EXPECT_TRUE(CheckLora(OddConfig(1), Spec(kAllLinear, {"embed_tokens", "lm_head"})).ok());
  EXPECT_EQ(CheckLora(OddConfig(1), Spec({}, {"q_norm"})).message(),
            "lora.modules_to_save: this model has no q_norm; it may name embed_tokens, "
            "input_layernorm, post_attention_layernorm, lm_head");
  EXPECT_NE(CheckLora(OddConfig(1), Spec({}, {"proj"})).message().find("proj names model.layers.0"),
            std::string::npos);
  ModelConfig tied = OddConfig(1);
  tied.tie_word_embeddings = true;
  EXPECT_NE(CheckLora(tied, Spec({}, {"lm_head"})).message().find("name embed_tokens"),
            std::string::npos);
  LoraSpec some = Spec({"q_proj"});
  some.bias = LoraBias::kLoraOnly;
  EXPECT_TRUE(CheckLora(OddConfig(1), some).ok());
  EXPECT_NE(CheckLora(Qwen2(), some).message().find("lora_only needs all of"), std::string::npos);
}

ModelConfig Phi3() {
  ModelConfig config = OddConfig(1);
  config.architecture = "Phi3ForCausalLM";
  return config;
}

TEST(SplitModel, PutsOneAdapterOnAFusedMatrix) {
  const std::vector<std::string> fused = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"};
  const SplitUnits split = SplitModel(Phi3(), 1, Spec(kAllLinear));
  const std::vector<UnitTensor>& tensors = split.trained[1].tensors;
  EXPECT_EQ(AdaptedTargets(tensors, Spec(kAllLinear)), fused);
  ASSERT_EQ(tensors.size(), 8u);
  EXPECT_EQ(tensors[0].name, "model.layers.0.self_attn.qkv_proj.lora_A.weight");
  EXPECT_EQ(tensors[0].shape, (std::vector<std::int64_t>{4, 37}));
  EXPECT_EQ(tensors[1].shape, (std::vector<std::int64_t>{80, 4}));
  EXPECT_EQ(NamesOf(SplitModel(Phi3(), 1, Spec(fused)).trained), NamesOf(split.trained));
  for (const LoraSpec& spec : {Spec(kAllLinear), Spec(fused)}) {
    const BlockLora lora = LoraOf(Phi3(), spec);
    ASSERT_EQ(lora.qkv.segments.size(), 1u);
    EXPECT_EQ(lora.qkv.segments[0].rows, 80);
    ASSERT_EQ(lora.gate_up.segments.size(), 1u);
    EXPECT_EQ(lora.gate_up.segments[0].rows, 86);
    EXPECT_TRUE(CheckLora(Phi3(), spec).ok());
  }
}

TEST(CheckLora, NamesTheModulesThatTheModelHas) {
  EXPECT_EQ(CheckLora(Phi3(), Spec({"q_proj", "o_proj"})).message(),
            "lora.target_modules: this model has no q_proj; it has qkv_proj, o_proj, gate_up_proj, "
            "down_proj, and all-linear is all of them");
  EXPECT_EQ(CheckLora(OddConfig(1), Spec({"gate_up_proj"})).message(),
            "lora.target_modules: this model has no gate_up_proj; it has q_proj, k_proj, v_proj, "
            "o_proj, gate_proj, up_proj, down_proj, and all-linear is all of them");
}

ModelConfig Mixture() {
  ModelConfig config = OddConfig(2);
  config.architecture = "Qwen3MoeForCausalLM";
  config.qk_norms = QkNorms::kPerHead;
  config.experts = {.count = 4, .per_token = 2, .intermediate_size = 19};
  return config;
}

// As transformers 5 and PEFT 0.21 have them, which wrap gate and up first.
TEST(SplitModel, PutsTwoTensorsBesideTheMatricesOfAllExperts) {
  const LoraSpec both = Spec({"mlp.experts.gate_up_proj", "mlp.experts.down_proj"});
  const SplitUnits split = SplitModel(Mixture(), 1, both);
  ASSERT_EQ(split.trained.size(), 6u);
  EXPECT_TRUE(split.trained[1].tensors.empty()) << "attention and the router";
  const std::vector<UnitTensor>& tensors = split.trained[4].tensors;
  ASSERT_EQ(tensors.size(), 4u);
  const std::string path = "model.layers.1.mlp.experts.", peft = kPeftPrefix + path;
  EXPECT_EQ(tensors[0].name, path + "gate_up_proj.lora_A.weight");
  EXPECT_EQ(tensors[0].shape, (std::vector<std::int64_t>{4 * 4, 37}));
  EXPECT_EQ(PeftName(tensors[0], both), peft + "base_layer.lora_A.weight");
  EXPECT_EQ(tensors[1].shape, (std::vector<std::int64_t>{2 * 19, 4 * 4}));
  EXPECT_EQ(PeftName(tensors[1], both), peft + "base_layer.lora_B.weight");
  EXPECT_EQ(tensors[2].shape, (std::vector<std::int64_t>{4 * 4, 19}));
  EXPECT_EQ(PeftName(tensors[2], both), peft + "lora_A.weight");
  EXPECT_EQ(tensors[3].name, path + "down_proj.lora_B.weight");
  EXPECT_EQ(tensors[3].shape, (std::vector<std::int64_t>{37, 4 * 4}));
  for (const UnitTensor& tensor : tensors) {
    EXPECT_TRUE(IsAdapterTensor(tensor) && IsExpertAdapter(tensor.role));
    EXPECT_FALSE(tensor.joined);
  }
  EXPECT_EQ(PeftName(tensors[0], Spec({"mlp.experts.gate_up_proj"})), peft + "lora_A.weight");
  EXPECT_EQ(NamesOf(split.frozen).size(), NamesOf(ModelUnits(Mixture())).size());
  const FlatLayout layout(split.trained, 1);
  EXPECT_EQ(layout.parameter_count(), 2 * 16 * (37 + 38 + 19 + 37));
  EXPECT_EQ(ActiveTrainedParameters(Mixture(), layout), layout.parameter_count() / 2)
      << "2 of 4 experts";
}

// The second of three layers is dense.
ModelConfig Qwen2Moe() {
  ModelConfig config = OddConfig(3);
  config.architecture = "Qwen2MoeForCausalLM";
  config.experts = {.count = 4,
                    .per_token = 2,
                    .intermediate_size = 19,
                    .shared_intermediate_size = 23,
                    .sparse_layers = {true, false, true}};
  return config;
}

// As PEFT does it: a name is the end of a module's path, and experts are no modules.
TEST(SplitModel, PutsAdaptersOnSharedExpertsAndOnTheDenseLayersOfAMixture) {
  const auto adapted = [](const LoraSpec& spec) {
    std::vector<std::string> modules;
    for (const std::string& name : NamesOf(SplitModel(Qwen2Moe(), 1, spec).trained)) {
      const bool of_feed_forward = name.find(".mlp.") != std::string::npos;
      if (of_feed_forward && name.ends_with(".lora_A.weight"))
        modules.push_back(name.substr(13, name.size() - 13 - 14));
    }
    return modules;
  };
  const std::vector<std::string> gates = {"0.mlp.shared_expert.gate_proj", "1.mlp.gate_proj",
                                          "2.mlp.shared_expert.gate_proj"};
  EXPECT_EQ(adapted(Spec({"q_proj", "gate_proj"})), gates);
  EXPECT_EQ(
      adapted(Spec({"shared_expert.down_proj", "shared_expert_gate"})),
      (std::vector<std::string>{"0.mlp.shared_expert.down_proj", "0.mlp.shared_expert_gate",
                                "2.mlp.shared_expert.down_proj", "2.mlp.shared_expert_gate"}));
  EXPECT_EQ(adapted(Spec(kAllLinear)).size(), 2u * 4 + 3);
  EXPECT_EQ(adapted(Spec({"q_proj", "mlp.experts.down_proj"})).size(), 2u) << "experts alone";
  std::vector<UnitTensor> trained;
  for (const UnitSpec& unit : SplitModel(Qwen2Moe(), 1, Spec(kAllLinear)).trained)
    trained.insert(trained.end(), unit.tensors.begin(), unit.tensors.end());
  EXPECT_EQ(AdaptedTargets(trained, Spec(kAllLinear)),
            (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
                                      "up_proj", "down_proj", "shared_expert_gate"}));
}

TEST(LoraOf, KeepsSharedExpertsAndDenseLayersApart) {
  const BlockLora both = LoraOf(Qwen2Moe(), Spec({"up_proj", "down_proj"}));
  ASSERT_EQ(both.gate_up.segments.size(), 1u);
  EXPECT_EQ(both.gate_up.segments[0].begin, 43);
  ASSERT_EQ(both.shared_gate_up.segments.size(), 1u);
  EXPECT_EQ(both.shared_gate_up.segments[0].begin, 23);
  EXPECT_EQ(both.shared_down.segments.size(), 1u);
  EXPECT_TRUE(both.expert_gate_up.segments.empty());
  const BlockLora shared = LoraOf(Qwen2Moe(), Spec({"shared_expert.up_proj"}));
  EXPECT_TRUE(shared.gate_up.segments.empty());
  EXPECT_EQ(shared.shared_gate_up.segments.size(), 1u);
  const BlockLora all = LoraOf(Qwen2Moe(), Spec(kAllLinear));
  EXPECT_EQ(all.shared_gate.segments.size(), 1u);
  EXPECT_TRUE(all.expert_down.segments.empty());
}

TEST(CheckLora, NamesTheModulesOfAMixture) {
  EXPECT_TRUE(CheckLora(Qwen2Moe(), Spec(kAllLinear)).ok());
  EXPECT_TRUE(CheckLora(Qwen2Moe(), Spec({"shared_expert.gate_proj", "gate_proj"})).ok());
  ModelConfig all_sparse = Mixture();
  all_sparse.architecture = "GptOssForCausalLM";
  EXPECT_TRUE(CheckLora(all_sparse, Spec(kAllLinear)).ok()) << "attention";
  EXPECT_EQ(CheckLora(all_sparse, Spec({"gate_proj"})).message(),
            "lora.target_modules: this model has no gate_proj; it has q_proj, k_proj, v_proj, "
            "o_proj, mlp.experts.gate_up_proj, mlp.experts.down_proj");
}

TEST(CheckTrain, NamesWhatExpertsCannotDoAndTheWayOut) {
  TrainSpec train;
  EXPECT_TRUE(CheckTrain(Mixture(), train).ok());
  train.fsdp.blocks_per_unit = 2;
  EXPECT_EQ(CheckTrain(Mixture(), train).message(),
            "fsdp.blocks_per_unit: the experts of this model are a unit for each layer; leave it "
            "at 1");
  EXPECT_TRUE(CheckTrain(OddConfig(2), train).ok());
  train.fsdp.blocks_per_unit = 1;
  train.lora = Spec({"q_proj", "o_proj"});
  EXPECT_TRUE(CheckTrain(Mixture(), train).ok());
  train.quantization.emplace();
  EXPECT_TRUE(CheckTrain(Mixture(), train).ok());
  EXPECT_TRUE(CheckTrain(OddConfig(2), train).ok());
  train.quantization.reset();
  for (const LoraSpec& spec : {Spec({"q_proj", "down_proj"}), Spec(kAllLinear)}) {
    train.lora = spec;
    EXPECT_EQ(CheckTrain(Mixture(), train).message(),
              "lora.target_modules: PEFT takes gate_proj, up_proj and down_proj of a "
              "Qwen3MoeForCausalLM for its experts, and all-linear for its router as well; list "
              "q_proj, k_proj, v_proj, o_proj, and for its experts mlp.experts.gate_up_proj and "
              "mlp.experts.down_proj");
  }
  train.lora = Spec({"q_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"});
  EXPECT_TRUE(CheckTrain(Mixture(), train).ok());
  EXPECT_EQ(CheckTrain(OddConfig(2), train).message(),
            "lora.target_modules: this model has no experts, and no mlp.experts.gate_up_proj; "
            "leave it out");
  train.lora->dropout = 0.1;
  EXPECT_EQ(CheckTrain(Mixture(), train).message(),
            "lora.dropout: adapters on experts (mlp.experts.gate_up_proj) have none, as in PEFT; "
            "set it to 0");
  train.lora.reset();
  train.fsdp.expert_parallel = 2;
  EXPECT_TRUE(CheckTrain(Mixture(), train).ok());
  EXPECT_EQ(CheckTrain(OddConfig(2), train).message(),
            "fsdp.expert_parallel: this model has no experts; leave it out");
  train.fsdp.expert_parallel = 3;
  EXPECT_EQ(CheckTrain(Mixture(), train).message(),
            "fsdp.expert_parallel: 3 ranks cannot have the same number of a layer's 4 experts; "
            "give a number that divides these");
  train.fsdp.expert_parallel = 2;
  train.lora = Spec({"q_proj"});
  EXPECT_TRUE(CheckTrain(Mixture(), train).ok());
  train.fsdp.expert_parallel = 1;
  train.lora = Spec({"q_proj"}, {"mlp.gate"});
  EXPECT_NE(CheckTrain(Mixture(), train).message().find("model.layers.0.mlp.gate is a router"),
            std::string::npos);
}

}  // namespace
}  // namespace muster
