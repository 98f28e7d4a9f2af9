// The configurations of accelerate (FSDP 1 and 2, DDP, DeepSpeed by reference) and of DeepSpeed
// (ZeRO 1 to 3), as keys of the job file.
//
// Every key of such a file is one of three: taken over, accepted as meaning nothing here with the
// reason in a note, or refused by name; a key that is in no table is refused too, and so are two
// that say different things of one key of a job. The job file wins over them: what it sets, or
// --set, stays. "auto" leaves a value to the job file.
//
// What keys mean: accelerate's ClusterConfig and FullyShardedDataParallelPlugin; DeepSpeed's
// "Configuration JSON" page. Pure but for ReadForeignConfig, which reads files; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/foreign_settings.h"

namespace muster {

// kInvalidArgument "file:line: key: reason" for the first key that cannot be had.
Result<ForeignConfig> ParseAccelerateConfig(std::string_view yaml, std::string_view file);
Result<ForeignConfig> ParseDeepSpeedConfig(std::string_view json, std::string_view file);

// As the one of the two that fits, but keys that cannot be had are in `refusals`, all of them.
Result<ForeignConfig> ExamineForeignConfig(std::string_view text, std::string_view file);
// Whether a text is accelerate's configuration, and not DeepSpeed's.
bool IsAccelerateConfig(std::string_view text);

// Reads either kind, and the DeepSpeed file that an accelerate file names.
Result<ForeignConfig> ReadForeignConfig(const std::string& file);

struct MergedJob {
  std::string yaml;
  std::vector<std::string> report;  // a line for each key: taken, not taken, or without meaning
};

// The job with what it does not set itself. Fails as ParseJobSpec, and where the rows of a step
// would be others than the configuration says.
Result<MergedJob> MergeForeignConfig(std::string_view job_yaml, std::string_view job_file,
                                     const ForeignConfig& config);

}  // namespace muster
