#include "common/job_spec/parse.h"

namespace muster {

std::string OutputDirectory(const JobSpec& spec) {
  const std::string name = spec.train ? spec.train->output_dir : "muster-" + spec.name;
  if (name.starts_with('/')) return name;
  return spec.workdir + "/" + name;
}

}  // namespace muster
