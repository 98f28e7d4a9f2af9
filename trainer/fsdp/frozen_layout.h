// How the tensors that a job does not train lie in the bytes that are sharded and gathered
// (frozen_weights.h, which keeps them so).
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/job_spec/job_spec.h"
#include "trainer/core/element_type.h"
#include "trainer/core/flat_layout.h"
#include "trainer/fsdp/packed_tensor.h"

namespace muster {

struct FrozenForm {
  ElementType compute = ElementType::kBFloat16;
  std::optional<QuantizationSpec> quantization;
};

// Whether the tensor is held in NF4: the matrices of blocks are, those of each expert too, where a
// job quantises. Routers are not.
bool IsPacked(const UnitTensor& tensor, const FrozenForm& form);
// Of such a tensor.
PackedLayout PackedLayoutOf(const UnitTensor& tensor, const FrozenForm& form);

// The layout of the units with each tensor as an array of bytes: its shape is the number of bytes
// it takes. Matrices begin at multiples of kPackedAlignment. `expert_ways` as FlatLayout's.
FlatLayout LayOutFrozen(const std::vector<UnitSpec>& units, const FrozenForm& form, int ranks,
                        int expert_ways);

}  // namespace muster
