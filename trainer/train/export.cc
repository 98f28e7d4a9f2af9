#include "trainer/train/export.h"

#include <vector>

#include "trainer/fsdp/export_stream.h"
#include "trainer/model/peft.h"
#include "trainer/model/stored_model.h"

namespace muster {
namespace {

// Every trained tensor, in the order in which the shards are streamed.
ModelDirectory::Adapter AdapterOf(const FlatLayout& layout, const ExportOptions& options) {
  std::vector<UnitTensor> trained;
  for (const FlatUnit& unit : layout.units()) {
    for (const FlatTensor& tensor : unit.tensors) trained.push_back(tensor.spec);
  }
  return PeftDirectory(trained, *options.lora, options.base_model);
}

// Every rank learns whether rank 0 managed, and whether it was only for want of room.
Status Agree(const Status& mine, Communicator& communicator) {
  if (communicator.size() == 1) return mine;
  const bool no_room = mine.code() == StatusCode::kResourceExhausted;
  std::int64_t failed = mine.ok() ? 0 : no_room ? 1 : 2;
  MUSTER_RETURN_IF_ERROR(
      communicator.AllReduce(&failed, 1, ElementType::kInt64, ReduceOp::kMax)->Wait());
  if (!mine.ok() || failed == 0) return mine;
  // Only a symptom here: rank 0 says the cause.
  return failed == 1 ? ResourceExhausted("rank 0 has no room for the model; see its log")
                     : Unavailable("rank 0 could not write the model; see its log");
}

constexpr Duration kRoomRetry = std::chrono::seconds(2);  // while a full disk keeps it back

}  // namespace

Status ExportModel(const ModelConfig& config, const FsdpEngine& engine, Communicator& communicator,
                   const ExportOptions& options) {
  ModelDirectory directory(options.source_dir, options.target_dir, options.writer);
  directory.Replace(options.replaced);
  Status status;
  if (communicator.rank() == 0) {
    status = options.lora ? directory.BeginAdapter(AdapterOf(engine.layout(), options))
                          : directory.Begin(StoredTensors(config), options.max_shard_bytes);
  }
  const Status begun = status;
  const TensorSink sink = [&](const float* values, std::int64_t count) {
    options.on_moved();
    return begun.ok() ? directory.Append(values, count) : begun;
  };
  // All ranks meet after each unit: no wait in a collective takes as long as the whole model.
  const auto meet = [&] {
    options.on_moved();
    return communicator.size() == 1 ? OkStatus() : communicator.Barrier();
  };
  // Replicas hold the same weights: the shard group of rank 0 sends them.
  Status streamed;
  if (engine.is_first_replica()) {
    streamed = StreamTensors(engine.layout(), engine.state(), engine.shard_group(), sink, meet);
  } else {
    for (std::size_t u = 0; u < engine.layout().units().size() && streamed.ok(); ++u) {
      streamed = meet();
    }
  }
  if (communicator.rank() != 0) {
    MUSTER_RETURN_IF_ERROR(streamed);
  } else if (status.ok()) {
    status = streamed.ok() ? directory.Seal() : streamed;
  }
  MUSTER_RETURN_IF_ERROR(Agree(status, communicator));
  if (communicator.rank() == 0) {
    status = options.called_off();
    if (status.ok()) status = directory.Publish();
  }
  return Agree(status, communicator);
}

TrainResult<std::string> Export(const RunContext& run, const FsdpEngine& engine,
                                const std::optional<AdapterOrigin>& origin) {
  const TrainInputs& inputs = *run.inputs;
  const std::optional<LoraSpec>& lora = run.train().lora;
  const ExportOptions options{.source_dir = inputs.model_dir,
                              .target_dir = run.output_dir() + (lora ? "/adapter" : "/model"),
                              .writer = run.supervisor.attached()
                                            ? ModelWriter{run.env.job_id, run.env.generation}
                                            : ModelWriter{},
                              .replaced = ChangedFiles(inputs, lora.has_value()),
                              .lora = lora,
                              .base_model = origin ? origin->base_model : std::string(),
                              .max_shard_bytes = run.train().output_max_shard_bytes,
                              .called_off = [&run] { return run.CalledOff(); },
                              .on_moved = run.on_moved()};
  for (bool noted = false;; noted = true) {
    run.progress.EnterPhase(TrainPhase::kExporting);
    const Status status = ExportModel(inputs.config, engine, run.communicator, options);
    if (status.ok()) return options.target_dir;
    if (status.code() != StatusCode::kResourceExhausted) {
      return FromSharedInput(FailureKind::kIo, status);
    }
    if (!noted && run.is_first()) {
      run.Note("warning", "the model waits for room on the disk: " + status.ToString());
    }
    // The phase changes with every try, for who does not move at all is taken to hang.
    run.progress.EnterPhase(TrainPhase::kCheckpoint);
    MUSTER_RETURN_IF_ERROR(
        run.supervisor.AwaitCalledOff(run.env.generation, Deadline::After(kRoomRetry)));
  }
}

}  // namespace muster
