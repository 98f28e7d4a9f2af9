// The forward pass of scoring and generation against the plain reference.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/parity/gang_run.h"
#include "tests/parity/reference.h"
#include "tests/parity/test_model.h"
#include "trainer/formats/safetensors.h"
#include "trainer/model/inference.h"
#include "trainer/model/llama_units.h"

namespace muster::parity {
namespace {

// config.json and model.safetensors of the test model, as another program would have left them.
void WriteModel(const std::string& dir, const ModelConfig& config) {
  std::ofstream(dir + "/config.json")
      << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",)"
      << "\"hidden_size\": " << config.hidden_size
      << ", \"intermediate_size\": " << config.intermediate_size
      << ", \"num_hidden_layers\": " << config.num_hidden_layers
      << ", \"num_attention_heads\": " << config.num_attention_heads
      << ", \"num_key_value_heads\": " << config.num_key_value_heads
      << ", \"head_dim\": " << config.head_dim << ", \"vocab_size\": " << config.vocab_size
      << ", \"rms_norm_eps\": " << config.rms_norm_eps << ", \"rope_theta\": " << config.rope_theta
      << ", \"tie_word_embeddings\": " << (config.tie_word_embeddings ? "true" : "false") << "}";
  std::vector<TensorSpec> specs;
  for (const UnitTensor& tensor : LlamaTensors(config)) {
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

TEST(Inference, LogitsMatchTheReference) {
  for (const bool tied : {false, true}) {
    std::string dir = testing::TempDir() + "parity-XXXXXX";
    ASSERT_NE(::mkdtemp(dir.data()), nullptr);
    const ModelConfig config = TestConfig({.tied = tied});
    WriteModel(dir, config);
    Result<InferenceModel> model = InferenceModel::Load(dir, at::kFloat);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    const at::Tensor ids = at::randint(config.vocab_size, {3, 19}, at::kLong);
    const at::Tensor got = model->Logits(ids);
    const ReferenceTrainer reference(config, RandomWeights(config), TestOptimizer(), at::kFloat);
    const at::Tensor want = reference.Logits(ids).detach();
    EXPECT_LE(((got - want).norm() / want.norm()).item<double>(), 1e-5);
    EXPECT_LE(((got - want).abs().max() / want.abs().max()).item<double>(), 1e-5);
    std::filesystem::remove_all(dir);
  }
}

}  // namespace
}  // namespace muster::parity
