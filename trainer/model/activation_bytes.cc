#include "trainer/model/activation_bytes.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "trainer/model/arena.h"
#include "trainer/model/attention_heads.h"
#include "trainer/model/block_inputs.h"
#include "trainer/model/block_memory.h"
#include "trainer/model/llama_head.h"
#include "trainer/model/parallel_experts.h"
#include "trainer/model/router.h"
#include "trainer/ops/attention.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/device_ops.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

std::int64_t BytesOf(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
  BumpAllocator allocator;
  if (rows * columns > 0) allocator.Cut({rows, columns}, type);
  return allocator.used();
}

// What LinearOps grow to: the gradient of the widest hidden values of adapters, the widest input
// once more where elements of it are dropped, and the largest matrix that is dequantised.
std::int64_t LayerBytes(const ModelConfig& config, const ActivationShape& shape,
                        std::int64_t tokens, at::ScalarType type) {
  std::int64_t hidden = 0, dropped = 0;
  const std::int64_t shared = config.experts ? config.experts->shared_intermediate_size : 0;
  for (const auto& [form, width] :
       {std::pair(&shape.lora.qkv, config.hidden_size),
        std::pair(&shape.lora.output, config.num_attention_heads * config.head_dim),
        std::pair(&shape.lora.gate_up, config.hidden_size),
        std::pair(&shape.lora.down, config.intermediate_size),
        std::pair(&shape.lora.shared_gate_up, config.hidden_size),
        std::pair(&shape.lora.shared_down, shared),
        std::pair(&shape.lora.shared_gate, config.hidden_size)}) {
    hidden = std::max(hidden, form->hidden_width());
    if (form->dropout > 0 && !form->segments.empty()) dropped = std::max(dropped, width);
  }
  return BytesOf(tokens, hidden, type) + BytesOf(tokens, dropped, type) +
         BytesOf(1, shape.largest_packed, type);
}

// What the loads of experts are added up in: of a micro-batch, and of the step.
std::int64_t LoadBytes(const ModelConfig& config) {
  if (config.SparseLayers() == 0) return 0;
  return 2 * LoadBalance(config).bytes();
}

std::int64_t ScoreBytes(const ModelConfig& config, const ActivationShape& shape) {
  const bool plain = ElementSize(shape.compute) > 2 || config.attention.cap != 0;
  if (shape.on_host || !plain) return 0;
  return op::MathAttentionBytes(HeadsOf(config, 0), shape.length, shape.compute);
}

}  // namespace

// Objects of the host, which only measure: what a layout takes is the same on every device.
ActivationBytes MeasureActivations(const ModelConfig& config, const ActivationShape& shape) {
  const std::unique_ptr<DeviceOps> ops = MakeCpuOps();
  const at::ScalarType type = ScalarTypeOf(shape.compute);
  const BatchShape batch{.rows = shape.rows, .length = shape.length};
  const bool leave = shape.level == ActivationCheckpointing::kFullOffload && !shape.on_host;
  const BlockInputs inputs(*ops, static_cast<int>(config.num_hidden_layers),
                           leave ? Arena::Memory::kHost : Arena::Memory::kDevice);
  const BlockInputs::Bytes of_inputs = inputs.BytesFor(batch.tokens(), config.hidden_size, type);
  const bool parallel = shape.expert_ways > 1 && config.SparseLayers() > 0;
  const BlockMemory memory(config, shape.lora, *ops, type, shape.level, parallel);
  const std::int64_t experts =
      parallel ? ParallelExperts::BytesFor(config, shape.lora, shape.expert_ways, batch.tokens(),
                                           type, memory.places())
               : 0;
  const at::Device device(shape.on_host ? at::kCPU : at::kCUDA);
  const LlamaHead head(*ops, type, LlamaHead::DefaultChunkBytes(device));
  return {.blocks = memory.BytesFor(batch) + of_inputs.device + experts +
                    LayerBytes(config, shape, batch.tokens(), type) + LoadBytes(config),
          .scores = ScoreBytes(config, shape),
          .host_inputs = of_inputs.host,
          .head = head.BytesFor({.tokens = batch.tokens(),
                                 .hidden = config.hidden_size,
                                 .vocabulary = config.vocab_size,
                                 .trains_head = shape.trains_head})};
}

}  // namespace muster
