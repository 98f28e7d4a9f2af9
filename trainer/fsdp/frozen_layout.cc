#include "trainer/fsdp/frozen_layout.h"

namespace muster {

bool IsPacked(const UnitTensor& tensor, const FrozenForm& form) {
  if (!form.quantization) return false;
  switch (tensor.role) {
    case TensorRole::kQkv:
    case TensorRole::kAttentionOutput:
    case TensorRole::kGateUp:
    case TensorRole::kDown:
    case TensorRole::kSharedExpertGate:
    case TensorRole::kExpertGateUp:
    case TensorRole::kExpertDown: return true;
    default: return false;
  }
}

PackedLayout PackedLayoutOf(const UnitTensor& tensor, const FrozenForm& form) {
  return LayOutPacked(ElementCount(tensor.shape), form.quantization->double_quant);
}

FlatLayout LayOutFrozen(const std::vector<UnitSpec>& units, const FrozenForm& form, int ranks,
                        int expert_ways) {
  const auto element = static_cast<std::int64_t>(ElementSize(form.compute));
  std::vector<UnitSpec> bytes = units;
  for (UnitSpec& unit : bytes) {
    for (UnitTensor& tensor : unit.tensors) {
      tensor.shape = {IsPacked(tensor, form) ? PackedLayoutOf(tensor, form).bytes
                                             : ElementCount(tensor.shape) * element};
    }
  }
  return FlatLayout(bytes, ranks, expert_ways, kPackedAlignment);
}

}  // namespace muster
