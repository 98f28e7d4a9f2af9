#include "trainer/fsdp/frozen_layout.h"

#include "common/base/round_up.h"

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

// The last tensor of a matrix takes the padding.
std::vector<UnitSpec> FrozenBytes(const std::vector<UnitSpec>& units, const FrozenForm& form) {
  const auto element = static_cast<std::int64_t>(ElementSize(form.compute));
  std::vector<UnitSpec> all;
  for (const UnitSpec& unit : units) {
    UnitSpec& bytes = all.emplace_back(
        UnitSpec{.name = unit.name, .tensors = unit.tensors, .blocks = unit.blocks});
    std::int64_t end = 0;
    for (std::size_t t = 0; t < unit.tensors.size(); ++t) {
      const UnitTensor& tensor = unit.tensors[t];
      std::int64_t count = IsPacked(tensor, form) ? PackedLayoutOf(tensor, form).bytes
                                                  : ElementCount(tensor.shape) * element;
      const bool ends = t + 1 == unit.tensors.size() || !unit.tensors[t + 1].joined;
      if (ends) count = RoundUp(end + count, kPackedAlignment) - end;
      end += count;
      bytes.tensors[t].shape = {count};
    }
  }
  return all;
}

}  // namespace muster
