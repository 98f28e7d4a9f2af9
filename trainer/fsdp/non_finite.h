// Which tensor holds a number that is not finite.
//
// Looks through the arrays, which costs as much as reading them: for a step that is known to have
// such a number. The trainer's thread.
#pragma once

#include <string>

#include "trainer/core/flat_layout.h"
#include "trainer/fsdp/shard_state.h"
#include "trainer/ops/device_ops.h"

namespace muster {

enum class ShardArrays { kWeights, kGradients };

// The first tensor of a rank's shards, in the order of the model, or "".
std::string NonFiniteTensor(const FlatLayout& layout, const ShardState& state, int shard_rank,
                            ShardArrays arrays, DeviceOps& ops);

// The same for a whole unit's array, laid out as the unit.
std::string NonFiniteTensor(const FlatUnit& unit, const void* flat, ElementType type,
                            DeviceOps& ops);

}  // namespace muster
