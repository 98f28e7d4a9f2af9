// Export: the trained model as a Hugging Face directory, or the trained adapter as one of PEFT,
// streamed out of the shards.
//
// Collective; the trainer's thread of every rank. Rank 0 writes into a directory beside the target
// and renames it into place, so that the target is there whole or not at all; an older one is
// replaced. That happens after all ranks have agreed that it is written: a gang that was given up
// and runs on somewhere puts nothing in place. No rank holds more than one small piece of another's
// weights.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/job_spec/job_spec.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/model_config.h"
#include "trainer/core/train_status.h"
#include "trainer/formats/model_directory.h"
#include "trainer/fsdp/fsdp_engine.h"
#include "trainer/state/checkpoint/adapter_origin.h"
#include "trainer/train/run_context.h"

namespace muster {

struct ExportOptions {
  std::string source_dir;  // configuration and tokenizer files are copied from here
  std::string target_dir;
  ModelWriter writer;
  std::vector<ModelFile> replaced = {};  // instead of source_dir's, where the job has changed them
  std::optional<LoraSpec> lora;          // the engine's: an adapter is written
  std::string base_model;                // what the adapter's configuration calls the model
  std::int64_t max_shard_bytes = kDefaultMaxShardBytes;
  // OK as long as the generation is not called off; asked by rank 0 right before the renaming.
  std::function<Status()> called_off;
  std::function<void()> on_moved;  // on every rank as the export goes on
};

// A model's weights are written in the element type that config.json names (torch_dtype), an
// adapter's in fp32. When rank 0 could not write, its status says why and that of the others is
// kUnavailable.
Status ExportModel(const ModelConfig& config, const FsdpEngine& engine, Communicator& communicator,
                   const ExportOptions& options);

// The same of a run, to <output>/model or <output>/adapter: that directory. `origin`: of the
// trained tensors. A full disk is waited for, since the trained state may be nowhere but in this
// process and its snapshot.
TrainResult<std::string> Export(const RunContext& run, const FsdpEngine& engine,
                                const std::optional<AdapterOrigin>& origin);

}  // namespace muster
