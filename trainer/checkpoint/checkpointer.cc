#include "trainer/checkpoint/checkpointer.h"

#include <exception>
#include <filesystem>
#include <utility>

#include "common/base/files.h"
#include "common/base/thread_priority.h"
#include "trainer/checkpoint/checkpoint_search.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/shard_file.h"

namespace muster {

Checkpointer::Checkpointer(CheckpointerOptions options,
                           std::unique_ptr<CheckpointCommitter> committer)
    : options_(std::move(options)), committer_(std::move(committer)) {
  thread_ = std::thread([this] { Work(); });
}

Checkpointer::~Checkpointer() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Result<LoadOutcome> Checkpointer::LoadNewest(Communicator& communicator,
                                             const std::vector<ShardArray>& into,
                                             TrainCursor* cursor) {
  CheckpointSearch search(communicator, options_.directory, options_.resume_file,
                          {.parameters = options_.parameters, .memory = options_.memory});
  MUSTER_ASSIGN_OR_RETURN(LoadOutcome outcome, search.Run(into, cursor));
  if (options_.resume_file.empty() && search.newest_generation() >= options_.generation) {
    options_.generation = search.newest_generation() + 1;
  }
  return outcome;
}

void Checkpointer::Prepare(const std::vector<ShardArray>& arrays) {
  if (!options_.writes) return;
  {
    std::lock_guard lock(mutex_);
    if (task_ != Task::kNone) return;
    prepared_ = arrays;
    task_ = Task::kReserve;
  }
  changed_.notify_all();
}

Result<SaveOutcome> Checkpointer::Save(Communicator& communicator, const TrainCursor& cursor,
                                       const std::vector<ShardArray>& arrays) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return task_ != Task::kReserve; });
  std::int64_t busy = task_ == Task::kWrite ? 1 : 0;
  lock.unlock();
  if (communicator.size() > 1) {
    MUSTER_RETURN_IF_ERROR(
        communicator.AllReduce(&busy, 1, ElementType::kInt64, ReduceOp::kMax)->Wait());
  }
  lock.lock();
  if (busy != 0) {
    ++counters_.skipped;
    return SaveOutcome::kSkipped;
  }
  ShardHeader header{.job_id = options_.job_id,
                     .generation = options_.generation,
                     .rank = options_.rank,
                     .world_size = options_.world_size,
                     .parameters = options_.parameters,
                     .cursor = cursor};
  if (options_.writes) header.arrays = arrays;
  image_.Capture(std::move(header), options_.memory);
  task_ = Task::kWrite;
  lock.unlock();
  changed_.notify_all();
  return SaveOutcome::kTaken;
}

Status Checkpointer::Drain(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline.when(), [&] { return task_ == Task::kNone; })) {
    return DeadlineExceeded("the checkpoint of step " +
                            std::to_string(image_.header().cursor.step) +
                            " is still being written");
  }
  return last_;
}

CheckpointerCounters Checkpointer::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

void Checkpointer::Work() {
  LowerThreadPriority();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || task_ != Task::kNone; });
    if (task_ == Task::kNone) return;
    const bool writing = task_ == Task::kWrite;
    lock.unlock();
    Status status = writing ? Write() : Reserve();
    lock.lock();
    if (writing) {
      ++(status.ok() ? counters_.saved : counters_.failed);
      last_ = std::move(status);
    }
    task_ = Task::kNone;
    changed_.notify_all();
  }
}

Status Checkpointer::Reserve() {
  try {
    image_.Reserve(prepared_);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for the copy of a shard");  // Save will try again and tell
  }
  return OkStatus();
}

Status Checkpointer::WriteAndReport(const CheckpointManifest& checkpoint) {
  const std::string directory = options_.directory + "/" + checkpoint.directory;
  MUSTER_RETURN_IF_ERROR(MakeDirectories(directory));
  MUSTER_RETURN_IF_ERROR(SyncDirectory(options_.directory));
  // The first checkpoint of a job may have made this directory too.
  const auto parent = std::filesystem::path(options_.directory).parent_path();
  if (!parent.empty()) MUSTER_RETURN_IF_ERROR(SyncDirectory(parent.string()));
  MUSTER_ASSIGN_OR_RETURN(
      const ShardRecord record,
      WriteShard(directory + "/" + ShardFileName(image_.header().rank), image_));
  return committer_->ShardWritten(checkpoint, record);
}

Status Checkpointer::Write() {
  const ShardHeader& header = image_.header();
  CheckpointManifest checkpoint;
  checkpoint.step = header.cursor.step;
  checkpoint.generation = header.generation;
  checkpoint.job_id = header.job_id;
  checkpoint.directory = CheckpointDirectoryName(header.cursor.step, header.generation);
  checkpoint.world_size = header.world_size;
  Status status;
  try {
    status = WriteAndReport(checkpoint);
  } catch (const std::exception& error) {
    // Nothing else would catch it on this thread. Out of memory, or a job id that is not UTF-8.
    status = Internal(error.what());
  }
  if (!status.ok()) committer_->Failed(checkpoint, header.rank, status);
  return status;
}

}  // namespace muster
