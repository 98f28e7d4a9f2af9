// ForeignConfig: what a configuration of accelerate or DeepSpeed says, as keys of the job file.
//
// Value types; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  std::string value = {};   // the same there, in YAML
  std::string unless = {};  // another key of the job file that says the same in another way
};

struct ForeignConfig {
  std::string file;  // as messages name it
  std::vector<ForeignSetting> settings;
  std::vector<std::string> notes;  // "fsdp_config.fsdp_use_orig_params: ..."
  std::vector<ForeignDefault> defaults;
  std::vector<std::string> refusals;  // "file:line: key: value: why"; ExamineForeignConfig fills it
  std::optional<std::int64_t> train_batch_size;  // rows of a step, over all ranks
  std::string deepspeed_file;                    // that an accelerate file names; empty: none
};

}  // namespace muster
