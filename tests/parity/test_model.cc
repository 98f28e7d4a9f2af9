#include "tests/parity/test_model.h"

#include <ATen/ATen.h>

#include <random>

#include "trainer/model/llama_units.h"

namespace muster::parity {
namespace {

MicroBatch RandomBatch(const ModelConfig& config, std::mt19937_64& random, bool with_labels) {
  MicroBatch batch;
  batch.rows = 2;
  batch.length = 5 + static_cast<std::int64_t>(random() % 9);
  for (std::int64_t i = 0; i < batch.rows * batch.length; ++i) {
    batch.input_ids.push_back(static_cast<std::int64_t>(random() % config.vocab_size));
    const bool trained = with_labels && random() % 3 != 0;
    batch.labels.push_back(trained ? static_cast<std::int64_t>(random() % config.vocab_size)
                                   : kIgnoredLabel);
    batch.label_count += trained;
  }
  return batch;
}

}  // namespace

ModelConfig TestConfig(TestModelOptions options) {
  ModelConfig config;
  config.hidden_size = 60;
  config.intermediate_size = 92;
  config.num_hidden_layers = options.blocks;
  config.num_attention_heads = 6;
  config.num_key_value_heads = 2;
  config.head_dim = 10;
  config.vocab_size = 131;
  config.rms_norm_eps = 1e-5;
  config.tie_word_embeddings = options.tied;
  return config;
}

ReferenceTrainer::Weights RandomWeights(const ModelConfig& config) {
  at::Generator generator = at::detail::createCPUGenerator(11);
  ReferenceTrainer::Weights weights;
  for (const UnitTensor& tensor : LlamaTensors(config)) {
    const at::Tensor values = at::randn(tensor.shape, generator) * 0.1;
    weights[tensor.name] = tensor.shape.size() == 1 ? values + 1.0 : values;
  }
  return weights;
}

StepBatches RandomBatches(const ModelConfig& config, int step, int world_size, int micro_batches) {
  std::mt19937_64 random(1000 + step);
  StepBatches batches(world_size);
  for (int r = 0; r < world_size; ++r) {
    for (int m = 0; m < micro_batches; ++m) {
      // Now and then a rank has nothing to learn from and must take part all the same.
      const bool with_labels = r == 0 || m + 1 < micro_batches || step % 2 == 0;
      batches[r].push_back(RandomBatch(config, random, with_labels));
    }
  }
  return batches;
}

}  // namespace muster::parity
