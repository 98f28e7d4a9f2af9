// Job file text to JobSpec, strictly: unknown keys, wrong types, values out of range and keys that
// this version does not act on are errors that name the file, the line and the key.
//
// Pure functions; any thread. YAML exceptions end here.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/job_spec/job_spec.h"

namespace muster {

// `file` is only used in messages: "job.yaml:12: train.optimizer.lr: expected a number, got
// 'fast'". `keys`, if given, gets each key that a file may have in the sections that this one has,
// dotted; configs/job.schema.json has them all.
Result<JobSpec> ParseJobSpec(std::string_view yaml, std::string_view file = "job file",
                             std::set<std::string>* keys = nullptr);

// The YAML with each "dotted.key=value" of `overrides` applied (the value is YAML too); keys that
// do not exist yet are added, so the check for unknown keys is ParseJobSpec's. Fails on a malformed
// override or one that goes through a scalar.
Result<std::string> ApplyOverrides(std::string_view yaml,
                                   const std::vector<std::string>& overrides);

// The job's output directory: train.output.dir below workdir, or muster-<name>-<id> below workdir
// for a command job, which has no directory of its own to name. Absolute if workdir is.
std::string OutputDirectory(const JobSpec& spec, const JobId& job);

}  // namespace muster
