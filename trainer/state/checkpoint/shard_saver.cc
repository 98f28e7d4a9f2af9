#include "trainer/state/checkpoint/shard_saver.h"

#include <unistd.h>

#include <cmath>
#include <exception>
#include <filesystem>
#include <new>
#include <utility>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/thread_priority.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/state/checkpoint/shard_file.h"

namespace muster {

ShardSaver::ShardSaver() : thread_([this] { Work(); }) {}

ShardSaver::~ShardSaver() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ShardSaver::Reserve(const std::vector<ShardArray>& arrays) {
  {
    std::lock_guard lock(mutex_);
    if (task_ != Task::kNone) return;
    reserved_ = arrays;
    task_ = Task::kReserve;
  }
  changed_.notify_all();
}

bool ShardSaver::writing() const {
  std::lock_guard lock(mutex_);
  return task_ == Task::kWrite;
}

void ShardSaver::BeginTake() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return task_ != Task::kReserve; });
  MUSTER_CHECK(task_ == Task::kNone, "one shard is written at a time");
  taken_ = false;
  written_ = 0;
  discarded_ = false;
  last_ = OkStatus();
  task_ = Task::kTake;
}

void ShardSaver::Take(ShardHeader header, SealedShard shard, Target target) {
  BeginTake();
  image_.Refer(std::move(header), std::move(shard));
  target_ = std::move(target);
  SetTask(Task::kWrite);
}

void ShardSaver::Take(ShardHeader header, const ArrayMemory& memory, Target target) {
  BeginTake();
  try {
    image_.Capture(std::move(header), memory);
  } catch (...) {
    SetTask(Task::kNone);
    throw;
  }
  target_ = std::move(target);
  SetTask(Task::kWrite);
}

void ShardSaver::SetTask(Task task) {
  {
    std::lock_guard lock(mutex_);
    task_ = task;
    taken_ = task == Task::kWrite;
  }
  changed_.notify_all();
}

bool ShardSaver::failed() const {
  std::lock_guard lock(mutex_);
  return taken_ && !discarded_ && task_ == Task::kNone && !last_.ok();
}

void ShardSaver::Discard() {
  std::lock_guard lock(mutex_);
  if (!taken_ || discarded_) return;
  discarded_ = true;
  if (task_ != Task::kWrite) RemoveShard();
}

Status ShardSaver::Drain(Generation generation, Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.when(), [&] { return Drained(generation); });
  return Outcome(generation);
}

Status ShardSaver::DrainWhileMoving(Generation generation, Duration timeout,
                                    const std::function<void()>& on_moved) {
  std::unique_lock lock(mutex_);
  for (std::uint64_t seen = 0;;) {
    const auto news = [&] { return Drained(generation) || written_ != seen; };
    if (!changed_.wait_until(lock, Deadline::After(timeout).when(), news)) break;
    if (Drained(generation)) break;
    seen = written_;
    lock.unlock();
    on_moved();
    lock.lock();
  }
  return Outcome(generation);
}

Status ShardSaver::Outcome(Generation generation) const {
  if (generation <= called_off_through_) return Cancelled("the generation was called off");
  if (task_ == Task::kNone) return last_;
  return DeadlineExceeded("the checkpoint of step " + std::to_string(image_.header().cursor.step) +
                          " is still being written");
}

void ShardSaver::CountWritten(std::uint64_t bytes) {
  {
    std::lock_guard lock(mutex_);
    written_ = bytes;
  }
  changed_.notify_all();
}

void ShardSaver::CallOff(Generation through) {
  {
    std::lock_guard lock(mutex_);
    called_off_through_ = std::max(called_off_through_, through);
  }
  changed_.notify_all();
}

ShardSaverCounters ShardSaver::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

void ShardSaver::Work() {
  LowerThreadPriority();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock,
                  [&] { return stopping_ || task_ == Task::kReserve || task_ == Task::kWrite; });
    if (task_ == Task::kNone) return;
    const bool writing = task_ == Task::kWrite;
    lock.unlock();
    const TimePoint begin = SystemClock().Now();
    Status status = writing ? Write() : ReserveMemory();
    const double seconds = ToSeconds(SystemClock().Now() - begin);
    lock.lock();
    if (writing) {
      ++(status.ok() ? counters_.saved : counters_.failed);
      if (status.ok()) {
        counters_.bytes += written_;
        counters_.write.Observe(seconds);
      }
      last_ = std::move(status);
      if (discarded_) RemoveShard();
    }
    task_ = Task::kNone;
    changed_.notify_all();
  }
}

Status ShardSaver::ReserveMemory() {
  try {
    image_.Reserve(reserved_);
  } catch (const std::bad_alloc&) {
    // Take will try again and report.
    return ResourceExhausted("no memory for the copy of a shard");
  }
  return OkStatus();
}

CheckpointManifest ShardSaver::Checkpoint() const {
  const ShardHeader& header = image_.header();
  CheckpointManifest checkpoint;
  checkpoint.step = header.cursor.step;
  checkpoint.generation = header.generation;
  checkpoint.job_id = header.job_id;
  checkpoint.directory = CheckpointDirectoryName(header.cursor.step, header.generation);
  checkpoint.world_size = header.world_size;
  const EvalHistory& evaluations = header.cursor.evaluations;
  if (evaluations.step == header.cursor.step && std::isfinite(evaluations.loss))
    checkpoint.eval_loss = evaluations.loss;
  return checkpoint;
}

Status ShardSaver::Write() {
  const CheckpointManifest checkpoint = Checkpoint();
  Status status;
  try {
    status = WriteAndReport(checkpoint);
  } catch (const std::exception& error) {
    // Nothing else would catch it on this thread. Out of memory, or a job id that is not UTF-8.
    status = Internal(error.what());
  }
  if (!status.ok()) target_.committer->Failed(checkpoint, image_.header().rank, status);
  image_.LetGo();
  return status;
}

Status ShardSaver::WriteAndReport(const CheckpointManifest& checkpoint) {
  const std::string directory = target_.directory + "/" + checkpoint.directory;
  MUSTER_RETURN_IF_ERROR(MakeDirectories(directory));
  MUSTER_RETURN_IF_ERROR(SyncDirectory(target_.directory));
  // The first checkpoint of a job may have made this directory too.
  const auto parent = std::filesystem::path(target_.directory).parent_path();
  if (!parent.empty()) MUSTER_RETURN_IF_ERROR(SyncDirectory(parent.string()));
  MUSTER_ASSIGN_OR_RETURN(const ShardRecord record,
                          WriteShard(directory + "/" + ShardFileName(image_.header().rank), image_,
                                     [this](std::uint64_t bytes) { CountWritten(bytes); }));
  if (!image_.intact()) return Cancelled("the state was given up while it was being written");
  return target_.committer->ShardWritten(checkpoint, record);
}

// The last rank's removes the directory too. What has a manifest counts, whatever came after it.
void ShardSaver::RemoveShard() const {
  const std::string directory = target_.directory + "/" + Checkpoint().directory;
  if (::access((directory + "/" + kManifestFile).c_str(), F_OK) == 0) return;
  (void)::unlink((directory + "/" + ShardFileName(image_.header().rank)).c_str());
  (void)::rmdir(directory.c_str());
}

}  // namespace muster
