// ScheduleRecorder: adds each pass of the scheduler to a recording (coordinator/replay), for
// `muster schedule replay`.
//
// Owned by the server; Record on the loop's thread, a thread of its own writes. It never makes a
// pass wait: where the file is full, the disk fails or falls kMaxQueued passes behind, the
// recording ends with a line of the log, and what it has stays readable.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/runtime/worker_pool.h"
#include "coordinator/scheduler/scheduler.h"

namespace muster {

class ScheduleRecorder {
 public:
  static constexpr std::size_t kMaxQueued = 256;

  // Makes the file, or goes on behind the last whole pass of a recording. kInvalidArgument: the
  // file is none; kDataLoss: it is damaged before its end; kFailedPrecondition: another process
  // records to it. `max_bytes`: of the file, and so of what waits to be written.
  static Result<std::unique_ptr<ScheduleRecorder>> Open(std::string path, std::int64_t max_bytes);

  void Record(const SchedulerSnapshot& snapshot, const SchedulePlan& plan, std::int64_t unix_ms);

 private:
  ScheduleRecorder(std::string path, UniqueFd file, std::int64_t bytes, std::int64_t max_bytes);
  void Write(const std::string& frame);
  void Fail();
  void End(const std::string& why);

  const std::string path_;
  const UniqueFd file_;
  const std::int64_t max_bytes_;
  std::int64_t expected_bytes_;  // with all that is queued; Record's thread
  std::int64_t bytes_;           // of the header and of whole passes; the pool's thread
  bool failed_ = false;          // the pool's thread
  std::atomic<bool> ended_ = false;
  WorkerPool pool_{"schedules", 1, kMaxQueued};
};

}  // namespace muster
