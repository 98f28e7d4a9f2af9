// Which rank and which tensor hold a number that is not finite.
#pragma once

#include <string>

#include "common/base/result.h"
#include "trainer/core/flat_layout.h"
#include "trainer/device/device_ops.h"
#include "trainer/sharding/mesh.h"
#include "trainer/sharding/shard_state.h"

namespace muster {

// Collective over the mesh's world; equal on all ranks. "rank 1: weight of model.norm.weight" or
// "rank 1: gradient of ..."; "" when every weight and gradient is finite (then the loss itself
// overflowed). A weight counts before any gradient, a lower rank before a higher one, and of a
// rank's tensors the first one that the data went through.
Result<std::string> FindNonFinite(const FlatLayout& layout, const ShardState& state,
                                  const Mesh& mesh, DeviceOps& ops);

}  // namespace muster
