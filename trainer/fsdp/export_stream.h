// From the shards of the ranks to the whole tensors of a model, in small pieces.
//
// No rank ever holds the whole model: one piece after the other is sent by the rank that holds it.
// The trainer's thread.
#pragma once

#include <cstdint>
#include <functional>

#include "common/base/status.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/flat_layout.h"
#include "trainer/fsdp/shard_state.h"

namespace muster {

// Takes the next `count` elements of the tensors in the order of the layout.
using TensorSink = std::function<Status(const float* values, std::int64_t count)>;

// Collective over `shard_group` (null: this rank holds all), called by every rank of it. Its rank
// 0's sink receives every tensor of the layout, unit by unit, in order, as fp32; the other ranks'
// sinks are not called. A failing sink does not stop the collective, so that no rank waits for one
// that has left; its first error is returned on rank 0 at the end.
// `after_unit` is called on every rank when all tensors of a unit are through; its error ends the
// stream.
Status StreamTensors(const FlatLayout& layout, const ShardState& state, Communicator* shard_group,
                     const TensorSink& sink, const std::function<Status()>& after_unit);

}  // namespace muster
