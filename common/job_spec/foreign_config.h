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

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster {

// A key of the job file with a value, as ApplyOverrides takes it, and what it comes from.
struct ForeignSetting {
  std::string key;          // "train.fsdp.strategy"
  std::string value;        // YAML
  std::string from;         // "fsdp_config.fsdp_sharding_strategy: FULL_SHARD"
  std::string unless = {};  // another key of the job file that says the same in another way
};

// A key that the file does not have, where its engine goes on with another value than a job does.
struct ForeignDefault {
  std::string key;          // "gradient_clipping"
  std::string means;        // "no clipping"
  std::string job_key;      // "train.optimizer.grad_clip"
  std::string unless = {};  // another key of the job file that says the same in another way
};

struct ForeignConfig {
  std::string file;  // as messages name it
  std::vector<ForeignSetting> settings;
  std::vector<std::string> notes;  // "fsdp_config.fsdp_use_orig_params: ..."
  std::vector<ForeignDefault> defaults;
  std::optional<std::int64_t> train_batch_size;  // rows of a step, over all ranks
  std::string deepspeed_file;                    // that an accelerate file names; empty: none
};

// kInvalidArgument "file:line: key: reason" for the first key that cannot be had.
Result<ForeignConfig> ParseAccelerateConfig(std::string_view yaml, std::string_view file);
Result<ForeignConfig> ParseDeepSpeedConfig(std::string_view json, std::string_view file);

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
