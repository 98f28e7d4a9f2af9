// A job file, as a user submits it and as a coordinator parses it again.
#include <string>

#include "common/job_spec/parse.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace muster;
  const std::string_view yaml = fuzz::TextOf(data, size);
  const Result<JobSpec> spec = ParseJobSpec(yaml);
  if (!spec.ok()) {
    fuzz::Require(spec.status().code() == StatusCode::kInvalidArgument, spec.status().ToString());
    return 0;
  }
  const Result<std::string> printed = ApplyOverrides(yaml, {"priority=7"});
  fuzz::Require(printed.ok(), "a job file that is good takes an override");
  JobSpec changed = *spec;
  changed.priority = 7;
  fuzz::RequireSame(ParseJobSpec(*printed), changed, "a job file that is printed is the same job");
  OutputDirectory(*spec, JobId{"0123456789"});
  return 0;
}
