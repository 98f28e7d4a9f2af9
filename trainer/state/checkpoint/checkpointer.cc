#include "trainer/state/checkpoint/checkpointer.h"

#include <utility>

namespace muster {

Checkpointer::Checkpointer(CheckpointerOptions options,
                           std::unique_ptr<CheckpointCommitter> committer,
                           std::shared_ptr<ShardSaver> saver)
    : options_(std::move(options)), committer_(std::move(committer)), saver_(std::move(saver)) {}

Result<LoadOutcome> Checkpointer::LoadNewest(Communicator& communicator,
                                             const std::vector<ShardArray>& into,
                                             TrainCursor* cursor, Step above) {
  CheckpointSearch search(communicator, options_.directory, options_.resume_file,
                          {.parameters = options_.parameters,
                           .memory = options_.memory,
                           .on_read = options_.on_read,
                           .fits = options_.fits});
  MUSTER_ASSIGN_OR_RETURN(LoadOutcome outcome, search.Run(into, cursor, above));
  if (options_.resume_file.empty() && search.newest_generation() >= options_.generation) {
    options_.generation = search.newest_generation() + 1;
  }
  return outcome;
}

void Checkpointer::Prepare(const std::vector<ShardArray>& arrays) {
  if (options_.writes) saver_->Reserve(arrays);
}

Result<SaveOutcome> Checkpointer::Save(Communicator& communicator, const TrainCursor& cursor,
                                       const std::vector<ShardArray>& arrays,
                                       const std::function<SealedShard()>& seal) {
  std::int64_t states[2] = {saver_->writing() ? 1 : 0, saver_->failed() ? 1 : 0};
  if (communicator.size() > 1) {
    MUSTER_RETURN_IF_ERROR(
        communicator.AllReduce(states, 2, ElementType::kInt64, ReduceOp::kMax)->Wait());
  }
  const auto [writing, failed] = states;
  if (failed != 0) saver_->Discard();
  if (writing != 0) {
    ++skipped_;
    return SaveOutcome::kSkipped;
  }
  ShardHeader header{.job_id = options_.job_id,
                     .generation = options_.generation,
                     .rank = options_.rank,
                     .world_size = options_.world_size,
                     .parameters = options_.parameters,
                     .cursor = cursor,
                     .adapter = options_.adapter};
  if (options_.writes) header.arrays = arrays;
  ShardSaver::Target target{options_.directory, committer_};
  if (options_.writes && seal) {
    saver_->Take(std::move(header), seal(), std::move(target));
  } else {
    saver_->Take(std::move(header), options_.memory, std::move(target));
  }
  return SaveOutcome::kTaken;
}

CheckpointerCounters Checkpointer::counters() const {
  const ShardSaverCounters of_saver = saver_->counters();
  return {.saved = of_saver.saved, .failed = of_saver.failed, .skipped = skipped_};
}

}  // namespace muster
