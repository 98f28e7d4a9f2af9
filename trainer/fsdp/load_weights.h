// From the tensors of safetensors files into the shards of the ranks, in small pieces.
//
// No rank ever holds the whole model: each reads its own intervals, by pread into a bounded buffer,
// so that the host's peak is the shard and little more (mapped files would count as its memory).
// The element types of the arrays may be any floating-point ones, and they may lie on a device
// (`memory`). The trainer's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/status.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/flat_layout.h"
#include "trainer/formats/safetensors.h"
#include "trainer/state/checkpoint/checkpoint.h"

namespace muster {

// Fills the intervals of `arrays` (ShardState::WeightArrays) from `model`. kNotFound,
// kFailedPrecondition (another shape) and what SafetensorsModel gives, with the tensor's name.
// `on_read`: called after each piece of 4 MiB; may be empty.
Status LoadIntervals(const SafetensorsModel& model, const std::vector<ShardArray>& arrays,
                     const ArrayMemory& memory = {}, const std::function<void()>& on_read = {});

// Collective over `group`. Where every rank could open the files, each reads its own intervals.
// Otherwise the first that could (`model` is not null) reads every tensor of `layout` once, piece
// by piece, and all keep what is theirs. kNotFound on every rank where none could; kUnavailable
// on the others when the reading rank failed, whose own status says why.
Status LoadIntervalsTogether(const SafetensorsModel* model, const FlatLayout& layout,
                             const std::vector<ShardArray>& arrays, Communicator& group,
                             const ArrayMemory& memory = {},
                             const std::function<void()>& on_read = {});

}  // namespace muster
