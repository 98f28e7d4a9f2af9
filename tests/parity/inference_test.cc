// The forward pass of scoring and generation against the plain reference.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/parity/gang_run.h"
#include "tests/parity/reference.h"
#include "tests/parity/test_model.h"
#include "trainer/model/inference.h"

namespace muster::parity {
namespace {

// What only the config.json of a Gemma or a gpt-oss says.
std::string OfKindsOfLayers(const ModelConfig& config) {
  if (config.attention.full_layers.empty()) return "";
  std::string types;
  for (const bool full : config.attention.full_layers)
    types += std::string(types.empty() ? "" : ", ") +
             (full ? "\"full_attention\"" : "\"sliding_attention\"");
  std::string json = ", \"query_pre_attn_scalar\": 20, \"layer_types\": [" + types + "]";
  const auto add = [&json](const std::string& key, double value) {
    json += ", \"" + key + "\": " + std::to_string(value);
  };
  if (config.attention.cap != 0) add("attn_logit_softcapping", config.attention.cap);
  if (config.logit_cap != 0) add("final_logit_softcapping", config.logit_cap);
  if (config.attention.window_rope_theta)
    add("rope_local_base_freq", *config.attention.window_rope_theta);
  if (config.rope_scaling)
    json += ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": " +
            std::to_string(config.rope_scaling->factor) + "}";
  if (config.attention.sinks) {
    json += ", \"num_local_experts\": " + std::to_string(config.experts->count) +
            ", \"num_experts_per_tok\": " + std::to_string(config.experts->per_token) +
            ", \"dtype\": \"float32\", \"attention_bias\": true";
    add("swiglu_limit", config.experts->clamped->limit);
    add("swiglu_alpha", config.experts->clamped->alpha);
  }
  return json;
}

// config.json and model.safetensors of the test model, as another program would have left them.
void WriteModelOf(const std::string& dir, const ModelConfig& config) {
  std::ofstream(dir + "/config.json")
      << "{\"architectures\": [\"" << config.architecture << "\"], \"hidden_act\": \"silu\""
      << (config.sliding_window ? ", \"sliding_window\": " + std::to_string(*config.sliding_window)
                                : std::string())
      << ", \"hidden_size\": " << config.hidden_size << ", \"intermediate_size\": "
      << (config.experts ? config.experts->intermediate_size : config.intermediate_size)
      << ", \"num_hidden_layers\": " << config.num_hidden_layers
      << ", \"num_attention_heads\": " << config.num_attention_heads
      << ", \"num_key_value_heads\": " << config.num_key_value_heads
      << ", \"head_dim\": " << config.head_dim << ", \"vocab_size\": " << config.vocab_size
      << ", \"rms_norm_eps\": " << config.rms_norm_eps << ", \"rope_theta\": " << config.rope_theta
      << (config.rotating_layers.empty() ? "" : ", \"no_rope_layer_interval\": 2")
      << OfKindsOfLayers(config)
      << ", \"tie_word_embeddings\": " << (config.tie_word_embeddings ? "true" : "false") << "}";
  WriteModel(config, RandomWeights(config), dir);
}

// The model of a directory that is there as long as the test needs it.
Result<InferenceModel> LoadTestModel(const ModelConfig& config) {
  at::set_num_threads(1);  // these matrices are too small for more
  std::string dir = testing::TempDir() + "parity-XXXXXX";
  if (::mkdtemp(dir.data()) == nullptr) return Unavailable("no temporary directory");
  WriteModelOf(dir, config);
  Result<InferenceModel> model = InferenceModel::Load(dir, at::kFloat);
  std::filesystem::remove_all(dir);
  return model;
}

// Every kind of block that there is; the window is shorter than the texts.
std::vector<ModelConfig> Kinds() {
  return {TestConfig({}),
          TestConfig({.tied = true}),
          TestConfig({.family = Family::kMistral}),
          TestConfig({.family = Family::kQwen2}),
          TestConfig({.family = Family::kQwen3}),
          TestConfig({.family = Family::kSmolLm3}),
          TestConfig({.family = Family::kOlmo2}),
          TestConfig({.tied = true, .family = Family::kGemma2}),
          TestConfig({.family = Family::kGemma3}),
          TestConfig({.family = Family::kGptOss})};
}

std::vector<std::int64_t> Greedy(InferenceModel& model, std::vector<std::int64_t> ids, int tokens,
                                 bool cached) {
  KvCache cache(model.config());
  std::size_t seen = 0;
  for (int i = 0; i < tokens; ++i) {
    const at::Tensor all = at::tensor(ids, at::kLong).unsqueeze(0);
    const at::Tensor logits =
        cached ? model.LastLogits(all.narrow(1, seen, ids.size() - seen), cache)[0]
               : model.Logits(all)[0][ids.size() - 1];
    seen = ids.size();
    ids.push_back(logits.argmax().item<std::int64_t>());
  }
  return ids;
}

TEST(Inference, GeneratesWithACacheWhatItGeneratesWithout) {
  for (const ModelConfig& config : Kinds()) {
    Result<InferenceModel> model = LoadTestModel(config);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    for (const int prompt : {1, 7, 19}) {
      std::vector<std::int64_t> ids;
      for (int i = 0; i < prompt; ++i) ids.push_back((5 * i + 3) % config.vocab_size);
      const std::vector<std::int64_t> plain = Greedy(*model, ids, 60, /*cached=*/false);
      EXPECT_EQ(Greedy(*model, ids, 60, /*cached=*/true), plain)
          << config.architecture << ", prompt of " << prompt;
    }
  }
}

TEST(Inference, TakesALongPromptInPieces) {
  for (const ModelConfig& config : Kinds()) {
    Result<InferenceModel> model = LoadTestModel(config);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    const at::Tensor ids = at::randint(config.vocab_size, {2, 1200}, at::kLong);
    KvCache cache(config);
    const at::Tensor got = model->LastLogits(ids, cache);
    const at::Tensor want = model->Logits(ids).select(1, 1199);
    EXPECT_LE(((got - want).norm() / want.norm()).item<double>(), 1e-5);
    EXPECT_EQ(cache.length(), 1200);
  }
}

TEST(Inference, LogitsMatchTheReference) {
  for (const ModelConfig& config : Kinds()) {
    SCOPED_TRACE(config.architecture);
    Result<InferenceModel> model = LoadTestModel(config);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    const at::Tensor ids = at::randint(config.vocab_size, {3, 19}, at::kLong);
    const at::Tensor got = model->Logits(ids);
    const ReferenceTrainer reference(config, RandomWeights(config), TestOptimizer(), at::kFloat);
    const at::Tensor want = reference.Logits(ids).detach();
    EXPECT_LE(((got - want).norm() / want.norm()).item<double>(), 1e-5);
    EXPECT_LE(((got - want).abs().max() / want.abs().max()).item<double>(), 1e-5);
  }
}

}  // namespace
}  // namespace muster::parity
