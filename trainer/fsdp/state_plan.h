// What segment a rank of a gang needs, before there is an engine or any other rank is asked.
//
// Pure: a function of the model, the options and the rank's place.
#pragma once

#include <string>

#include "common/base/result.h"
#include "trainer/core/model_config.h"
#include "trainer/fsdp/fsdp_engine.h"
#include "trainer/state/snapshot/segment.h"

namespace muster {

struct GangPlace {
  int rank = 0;
  int world_size = 1;
};

// The spec of the segment for FsdpOptions::segment of that rank. What a state is made of (units,
// types, number of shards) is in its `layout`. kInvalidArgument as ShapeOf.
Result<SegmentSpec> PlanSegment(std::string name, const ModelConfig& config,
                                const FsdpOptions& options, const GangPlace& place);

}  // namespace muster
