// Rules that the tables of accelerate and of DeepSpeed have in common: both have the same keys for
// DeepSpeed's engine, one under deepspeed_config.
//
// Pure; any thread. Private to common/job_spec.
#pragma once

#include "common/job_spec/foreign_reader.h"

namespace muster {

// A ZeRO stage, 0 to 3.
void MapStage(ForeignReader& reader, const ForeignEntry& entry);
// cpu, or none.
void MapOffloadDevice(ForeignReader& reader, const ForeignEntry& entry);
void MapAccumulation(ForeignReader& reader, const ForeignEntry& entry);
void MapClipping(ForeignReader& reader, const ForeignEntry& entry);

}  // namespace muster
