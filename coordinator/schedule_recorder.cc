#include "coordinator/schedule_recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/files.h"
#include "common/telemetry/log.h"
#include "coordinator/replay/recording.h"
#include "coordinator/replay/schedule_record.h"

namespace muster {
namespace {

// The length of the recording without a pass that a coordinator did not finish; 0: the file is new.
Result<std::int64_t> WholeBytes(const std::string& path) {
  const Result<std::string> bytes = ReadFile(path, 2 * kMaxRecordingBytes);
  if (!bytes.ok() && bytes.status().code() == StatusCode::kNotFound) return std::int64_t{0};
  MUSTER_RETURN_IF_ERROR(bytes.status());
  if (bytes->empty()) return std::int64_t{0};
  RecordingReader reader(*bytes, path);
  v1::SchedulePass pass;
  Result<bool> more = true;
  while (more.ok() && *more) more = reader.Next(&pass);
  if (!more.ok() && more.status().code() != StatusCode::kDataLoss) return more.status();
  return static_cast<std::int64_t>(reader.offset());
}

}  // namespace

Result<std::unique_ptr<ScheduleRecorder>> ScheduleRecorder::Open(std::string path,
                                                                 std::int64_t max_bytes) {
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t whole, WholeBytes(path));
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file.valid() || ::ftruncate(file.get(), whole) != 0)
    return Unavailable(path + " cannot be written: " + std::strerror(errno));
  std::unique_ptr<ScheduleRecorder> recorder(
      new ScheduleRecorder(std::move(path), std::move(file), whole, max_bytes));
  if (whole == 0) recorder->Write(RecordingHeader());
  return recorder;
}

ScheduleRecorder::ScheduleRecorder(std::string path, UniqueFd file, std::int64_t bytes,
                                   std::int64_t max_bytes)
    : path_(std::move(path)), file_(std::move(file)), max_bytes_(max_bytes), bytes_(bytes) {}

void ScheduleRecorder::Record(const SchedulerSnapshot& snapshot, const SchedulePlan& plan,
                              std::int64_t unix_ms) {
  if (ended_) return;
  auto pass = std::make_shared<const v1::SchedulePass>(ToProto(snapshot, plan, unix_ms));
  if (!pool_.TrySubmit([this, pass] { Write(RecordingFrame(*pass)); }))
    End("the disk does not keep up");
}

void ScheduleRecorder::Write(const std::string& frame) {
  if (ended_) return;
  if (bytes_ + static_cast<std::int64_t>(frame.size()) > max_bytes_)
    return End("it is full, with " + std::to_string(bytes_) + " bytes");
  for (std::size_t written = 0; written < frame.size();) {
    const ssize_t count = ::write(file_.get(), frame.data() + written, frame.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return End(std::strerror(errno));
    written += static_cast<std::size_t>(count);
  }
  bytes_ += static_cast<std::int64_t>(frame.size());
}

void ScheduleRecorder::End(const std::string& why) {
  if (!ended_.exchange(true)) Log().warn("the recording of schedules in {} ends: {}", path_, why);
}

}  // namespace muster
