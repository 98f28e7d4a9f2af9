// Reading of the job file's section `container`. Private to common/job_spec.
#pragma once

#include "common/job_spec/job_spec.h"
#include "common/job_spec/yaml_reader.h"

namespace muster {

void ReadContainer(MapReader& file, ContainerSpec* out);

}  // namespace muster
