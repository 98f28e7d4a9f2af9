#include "trainer/model/activation_bytes.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "trainer/device/device_ops.h"
#include "trainer/device/scalar_type.h"
#include "trainer/model/arena.h"
#include "trainer/model/block_inputs.h"
#include "trainer/model/block_memory.h"
#include "trainer/model/llama_head.h"

namespace muster {
namespace {

// The widest input of adapters once more, where elements of it are dropped (LinearLayers).
std::int64_t DroppedBytes(const ModelConfig& config, const BlockLora& lora, std::int64_t tokens,
                          at::ScalarType type) {
  std::int64_t widest = 0;
  for (const auto& [form, width] :
       {std::pair(&lora.qkv, config.hidden_size),
        std::pair(&lora.output, config.num_attention_heads * config.head_dim),
        std::pair(&lora.gate_up, config.hidden_size),
        std::pair(&lora.down, config.intermediate_size)}) {
    if (form->dropout > 0 && !form->segments.empty()) widest = std::max(widest, width);
  }
  Cutter cutter;
  if (widest > 0) cutter.Cut({tokens, widest}, type);
  return cutter.used();
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
  const BlockMemory memory(config, shape.lora, *ops, type, shape.level);
  const at::Device device(shape.on_host ? at::kCPU : at::kCUDA);
  const LlamaHead head(*ops, type, LlamaHead::DefaultChunkBytes(device));
  return {.blocks = memory.BytesFor(batch) + of_inputs.device +
                    DroppedBytes(config, shape.lora, batch.tokens(), type),
          .host_inputs = of_inputs.host,
          .head = head.BytesFor(batch.tokens(), config.hidden_size, config.vocab_size)};
}

}  // namespace muster
