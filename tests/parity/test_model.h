// A small random model on disk and random batches for it, the same for every rank and every run.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/job_spec/job_spec.h"
#include "tests/parity/reference.h"
#include "trainer/core/model_config.h"
#include "trainer/data/batch_loader.h"

namespace muster::parity {

enum class Family {
  kLlama,
  kMistral,
  kQwen2,
  kQwen3,
  kSmolLm3,
  kOlmo2,
  kQwen2Moe,
  kQwen3Moe,
  kOlmoe,
  kMixtral,
  kGranite,
  kPhi3,
  kGemma2,
  kGemma3,
  kGptOss
};

struct TestModelOptions {
  bool tied = false;
  int blocks = 3;
  int experts = 0;  // of a sparse layer; 0: as many as the family's have here
  Family family = Family::kLlama;
  std::optional<LoraSpec> lora;
  std::optional<QuantizationSpec> quantization;
};

// Grouped heads, sizes that no world size divides.
ModelConfig TestConfig(const TestModelOptions& options);
// Weights large enough that every tensor matters to the loss, those of adapters among them.
ReferenceTrainer::Weights RandomWeights(const TestModelOptions& options);
ReferenceTrainer::Weights RandomWeights(const ModelConfig& config,
                                        const std::optional<LoraSpec>& lora = {});
// The same as a job reads them: quantised ones have lost what NF4 loses.
ReferenceTrainer::Weights WeightsAsTrained(const TestModelOptions& options);
// Writes those of the model, without adapters, as model.safetensors of `dir`.
void WriteModel(const TestModelOptions& options, const std::string& dir);
void WriteModel(const ModelConfig& config, const ReferenceTrainer::Weights& weights,
                const std::string& dir);
// The names of the tensors that are trained.
std::set<std::string> TrainedNames(const TestModelOptions& options);

// Micro-batches of one step: [rank][micro-batch]. Lengths and label counts differ.
using StepBatches = std::vector<std::vector<MicroBatch>>;
StepBatches RandomBatches(const ModelConfig& config, int step, int world_size, int micro_batches);

}  // namespace muster::parity
