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
#include "trainer/formats/safetensors.h"
#include "trainer/model/families/units.h"
#include "trainer/model/inference.h"

namespace muster::parity {
namespace {

// config.json and model.safetensors of the test model, as another program would have left them.
void WriteModel(const std::string& dir, const ModelConfig& config) {
  std::ofstream(dir + "/config.json")
      << "{\"architectures\": [\"" << config.architecture << "\"], \"hidden_act\": \"silu\""
      << (config.sliding_window ? ", \"sliding_window\": " + std::to_string(*config.sliding_window)
                                : std::string())
      << ", \"hidden_size\": " << config.hidden_size
      << ", \"intermediate_size\": " << config.intermediate_size
      << ", \"num_hidden_layers\": " << config.num_hidden_layers
      << ", \"num_attention_heads\": " << config.num_attention_heads
      << ", \"num_key_value_heads\": " << config.num_key_value_heads
      << ", \"head_dim\": " << config.head_dim << ", \"vocab_size\": " << config.vocab_size
      << ", \"rms_norm_eps\": " << config.rms_norm_eps << ", \"rope_theta\": " << config.rope_theta
      << (config.rotating_layers.empty() ? "" : ", \"no_rope_layer_interval\": 2")
      << ", \"tie_word_embeddings\": " << (config.tie_word_embeddings ? "true" : "false") << "}";
  std::vector<TensorSpec> specs;
  for (const UnitTensor& tensor : ModelTensors(config)) {
    specs.push_back({.name = tensor.name, .type = TensorType::kF32, .shape = tensor.shape});
  }
  auto writer = SafetensorsWriter::Create(dir + "/model.safetensors", specs);
  ASSERT_TRUE(writer.ok());
  const ReferenceTrainer::Weights weights = RandomWeights(config);
  for (const TensorSpec& spec : specs) {
    const at::Tensor values = weights.at(spec.name).contiguous();
    ASSERT_TRUE(writer->AppendFloats(values.const_data_ptr<float>(), values.numel()).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
}

// The model of a directory that is there as long as the test needs it.
Result<InferenceModel> LoadTestModel(const ModelConfig& config) {
  at::set_num_threads(1);  // these matrices are too small for more
  std::string dir = testing::TempDir() + "parity-XXXXXX";
  if (::mkdtemp(dir.data()) == nullptr) return Unavailable("no temporary directory");
  WriteModel(dir, config);
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
          TestConfig({.family = Family::kOlmo2})};
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
