// TrainInputs: everything a rank reads before it trains, apart from weights and checkpoints.
//
// Read by every rank for itself, so that no rank waits for another's disk. Plain values after Load.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "trainer/core/model_config.h"
#include "trainer/core/train_status.h"
#include "trainer/data/dataset.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/safetensors.h"
#include "trainer/inputs/load_rows.h"
#include "trainer/inputs/sample_prompts.h"
#include "trainer/inputs/vocab_growth.h"

namespace muster {

struct TrainInputs {
  std::string model_dir;
  ModelConfig config;                 // as it is trained
  std::optional<VocabGrowth> growth;  // what sets it apart from the directory's; nothing: nothing
  // Instead of the directory's, which does not say that texts end where the rows end a turn; empty:
  // it does, or they end none.
  std::string generation_config;
  // Opened and checked against config; nothing read yet. kNotFound where this node has no weights,
  // which is no fault: another node may, and with init_from or a checkpoint none are needed.
  Result<SafetensorsModel> weights;
  // FingerprintWeights of the files, before growth; of a job with adapters that has them here.
  std::optional<std::uint64_t> base_weights;
  std::unique_ptr<const Dataset> dataset;
  std::unique_ptr<const Dataset> eval;   // null: the job evaluates on nothing
  std::optional<SamplePrompts> samples;  // nothing: the job asks for none
  std::vector<std::string> notes;        // for people: what could not be done as wished
  std::int32_t pad_id = 0;
};

// Blocks on the file system. The failure's kind says which input is at fault.
TrainResult<TrainInputs> LoadTrainInputs(const JobSpec& spec, const InputEvents& events = {});

// The files that differ from the model directory's: what an exported model has in their place, or
// an exported adapter, which has no config.json.
std::vector<ModelFile> ChangedFiles(const TrainInputs& inputs, bool adapter);

// The inputs of a process, read when they are first needed and kept. One thread.
class ProcessInputs {
 public:
  // `spec` outlives the inputs.
  explicit ProcessInputs(const JobSpec& spec, InputEvents events = {})
      : spec_(spec), events_(std::move(events)) {}

  // Reads them unless that was done and the rows are still there. `meet` is called often, while
  // this process reads and while it waits for another one that does; may be empty.
  TrainStatus Load(const std::function<void()>& meet = {});
  // Precondition: loaded.
  const TrainInputs& operator*() const { return *inputs_; }
  const TrainInputs* operator->() const { return &*inputs_; }

 private:
  const JobSpec& spec_;
  const InputEvents events_;
  std::optional<TrainInputs> inputs_;
};

}  // namespace muster
