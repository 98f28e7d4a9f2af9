// How much memory a micro-batch takes on its way through the blocks and the head, by the layouts
// that training itself cuts its memory with; nothing is allocated.
//
// Pure; any thread.
#pragma once

#include <cstdint>

#include "common/job_spec/job_spec.h"
#include "trainer/core/element_type.h"
#include "trainer/core/model_config.h"
#include "trainer/model/lora_form.h"

namespace muster {

struct ActivationShape {
  std::int64_t rows = 1;
  std::int64_t length = 0;  // as padded
  ElementType compute = ElementType::kBFloat16;
  ActivationCheckpointing level = ActivationCheckpointing::kSelective;
  bool on_host = true;      // the device that computes is the host
  BlockLora lora = {};      // adapters on each block
  bool trains_head = true;  // or, where it is tied, the embedding
  // Elements of the largest matrix of blocks that lies packed and is made whole to be used.
  std::int64_t largest_packed = 0;
  int expert_ways = 1;  // ranks that experts are divided among, each of which gets as many rows
};

struct ActivationBytes {
  std::int64_t blocks = 0;       // LlamaBlocks::bytes: kept for backward, and computed in
  std::int64_t scores = 0;       // of attention, where a GPU has no fused kernel for it
  std::int64_t host_inputs = 0;  // inputs of blocks that wait in host memory (full_offload)
  std::int64_t head = 0;         // LlamaHead::bytes, with its chunk of logits
};

ActivationBytes MeasureActivations(const ModelConfig& config, const ActivationShape& shape);

}  // namespace muster
