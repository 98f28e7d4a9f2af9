// What a rank of a gang saves, and which segment it needs for that, before there is an engine or
// any other rank is asked.
//
// Pure: functions of the model, the options and the rank's place.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/core/flat_layout.h"
#include "trainer/core/model_config.h"
#include "trainer/fsdp/fsdp_options.h"
#include "trainer/model/adapters.h"
#include "trainer/state/snapshot/segment.h"

namespace muster {

// "<unit>/weight", "<unit>/exp_avg" and "<unit>/exp_avg_sq" of that rank of the shard group: what
// checkpoints and segments hold. Without data.
std::vector<ShardArray> StateArrays(const FlatLayout& layout, int rank, const Precision& precision);

// The layout of what a model's ranks train. Adapters on experts are one tensor for all of a layer,
// in which those of an expert do not lie together: with adapters no unit has slices.
FlatLayout LayOutTrained(const SplitUnits& units, int ranks, int expert_ways);

// All of a layout in one text, to be hashed: equal texts are equal cuts of equal tensors.
std::string LayoutText(const FlatLayout& layout);

struct GangPlace {
  int rank = 0;
  int world_size = 1;
};

// The spec of the segment for FsdpOptions::segment of that rank. What a state is made of (units,
// types, number of shards) is in its `layout`. kInvalidArgument as ShapeOf.
Result<SegmentSpec> PlanSegment(std::string name, const ModelConfig& config,
                                const FsdpOptions& options, const GangPlace& place);

}  // namespace muster
