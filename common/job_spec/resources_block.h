// Reads `resources` of a job file; docs/job-file.md describes its keys. Private to common/job_spec.
#pragma once

#include "common/job_spec/job_spec.h"
#include "common/job_spec/yaml_reader.h"

namespace muster {

// `file` is the map of the whole job file.
void ReadResources(MapReader& file, ResourceSpec* out);

// What depends on whether it is a train job.
void CheckResources(MapReader& file, const JobSpec& spec);

}  // namespace muster
