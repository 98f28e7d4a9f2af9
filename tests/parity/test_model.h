// A small random model on disk and random batches for it, the same for every rank and every run.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "tests/parity/reference.h"
#include "trainer/core/model_config.h"
#include "trainer/data/batch_loader.h"

namespace muster::parity {

struct TestModelOptions {
  bool tied = false;
  int blocks = 3;
};

// Grouped heads, sizes that no world size divides.
ModelConfig TestConfig(TestModelOptions options);
// Weights large enough that every tensor matters to the loss.
ReferenceTrainer::Weights RandomWeights(const ModelConfig& config);

// Micro-batches of one step: [rank][micro-batch]. Lengths and label counts differ.
using StepBatches = std::vector<std::vector<MicroBatch>>;
StepBatches RandomBatches(const ModelConfig& config, int step, int world_size, int micro_batches);

}  // namespace muster::parity
