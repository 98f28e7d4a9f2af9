#include "trainer/checkpoint/checkpointer.h"

#include <cstring>
#include <exception>
#include <filesystem>
#include <utility>

#include "common/base/files.h"
#include "trainer/checkpoint/checkpoint_search.h"
#include "trainer/checkpoint/manifest.h"

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
  CheckpointSearch search(communicator, options_.directory, options_.resume_file);
  MUSTER_ASSIGN_OR_RETURN(LoadOutcome outcome, search.Run(into, cursor));
  if (options_.resume_file.empty() && search.newest_generation() >= options_.generation) {
    options_.generation = search.newest_generation() + 1;
  }
  return outcome;
}

void Checkpointer::Save(const TrainCursor& cursor, const std::vector<ShardArray>& arrays) {
  std::unique_lock lock(mutex_);
  if (in_flight_) ++counters_.waited;
  changed_.wait(lock, [&] { return !in_flight_; });
  snapshot_.header = {
      options_.job_id, options_.generation, options_.rank, options_.world_size, cursor, arrays};
  snapshot_.memory.resize(arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::size_t bytes =
        static_cast<std::size_t>(arrays[i].count) * ElementSize(arrays[i].type);
    snapshot_.memory[i].resize(bytes);
    if (bytes > 0) std::memcpy(snapshot_.memory[i].data(), arrays[i].data, bytes);
    snapshot_.header.arrays[i].data = snapshot_.memory[i].data();
  }
  in_flight_ = true;
  lock.unlock();
  changed_.notify_all();
}

Status Checkpointer::Drain(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline.when(), [&] { return !in_flight_; })) {
    return DeadlineExceeded("the checkpoint of step " +
                            std::to_string(snapshot_.header.cursor.step) +
                            " is still being written");
  }
  return last_;
}

CheckpointerCounters Checkpointer::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

void Checkpointer::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || in_flight_; });
    if (!in_flight_) return;
    lock.unlock();
    Status status = Write();
    lock.lock();
    ++(status.ok() ? counters_.saved : counters_.failed);
    last_ = std::move(status);
    in_flight_ = false;
    changed_.notify_all();
  }
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
      WriteShard(directory + "/" + ShardFileName(snapshot_.header.rank), snapshot_.header));
  return committer_->ShardWritten(checkpoint, record);
}

Status Checkpointer::Write() {
  const ShardHeader& header = snapshot_.header;
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
