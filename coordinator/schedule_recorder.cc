#include "coordinator/schedule_recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/file_lock.h"
#include "common/base/files.h"
#include "common/telemetry/log.h"
#include "coordinator/replay/recording.h"
#include "coordinator/replay/schedule_record.h"

namespace muster {
namespace {

// The length of the recording without a pass, or a header, that a coordinator did not write to its
// end; 0: the file is new.
Result<std::int64_t> WholeBytes(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, 2 * kMaxRecordingBytes));
  const std::string header = RecordingHeader();
  RecordingReader reader(bytes, path);
  if (bytes.size() >= header.size() || !header.starts_with(bytes)) {
    v1::SchedulePass pass;
    Result<bool> more = true;
    while (more.ok() && *more) more = reader.Next(&pass);
    if (!more.ok() && !reader.is_torn())
      return Status(more.status().code(),
                    more.status().message() + "; move the file away, or name another one");
  }
  if (reader.offset() < bytes.size())
    Log().warn(
        "the recording of schedules in {} ends within pass {}: its last {} bytes are removed", path,
        reader.passes() + 1, bytes.size() - reader.offset());
  return static_cast<std::int64_t>(reader.offset());
}

}  // namespace

Result<std::unique_ptr<ScheduleRecorder>> ScheduleRecorder::Open(std::string path,
                                                                 std::int64_t max_bytes) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const auto unusable = [&path] {
    return Unavailable(path + " cannot be written: " + std::strerror(errno));
  };
  if (!file.valid()) return unusable();
  MUSTER_ASSIGN_OR_RETURN(const bool locked, LockFile(file.get()));
  if (!locked)
    return FailedPrecondition("another coordinator records to " + path + "; name another file");
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t whole, WholeBytes(path));
  if (::fchmod(file.get(), 0600) != 0 || ::ftruncate(file.get(), whole) != 0) return unusable();
  const std::string header = whole == 0 ? RecordingHeader() : "";
  std::unique_ptr<ScheduleRecorder> recorder(
      new ScheduleRecorder(std::move(path), std::move(file), whole, max_bytes));
  if (!header.empty()) recorder->Write(header);
  recorder->expected_bytes_ += static_cast<std::int64_t>(header.size());
  return recorder;
}

ScheduleRecorder::ScheduleRecorder(std::string path, UniqueFd file, std::int64_t bytes,
                                   std::int64_t max_bytes)
    : path_(std::move(path)),
      file_(std::move(file)),
      max_bytes_(max_bytes),
      expected_bytes_(bytes),
      bytes_(bytes) {}

void ScheduleRecorder::Record(const SchedulerSnapshot& snapshot, const SchedulePlan& plan,
                              std::int64_t unix_ms) {
  if (ended_) return;
  auto pass = std::make_shared<const v1::SchedulePass>(ToProto(snapshot, plan, unix_ms));
  const std::int64_t bytes = RecordingFrameBytes(*pass);
  if (bytes > max_bytes_ - expected_bytes_)
    return End("it is full, with " + std::to_string(expected_bytes_) + " bytes");
  if (!pool_.TrySubmit([this, pass] { Write(RecordingFrame(*pass)); }))
    return End("the disk does not keep up");
  expected_bytes_ += bytes;
}

void ScheduleRecorder::Write(const std::string& frame) {
  if (failed_) return;
  for (std::size_t written = 0; written < frame.size();) {
    const ssize_t count = ::write(file_.get(), frame.data() + written, frame.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Fail();
    written += static_cast<std::size_t>(count);
  }
  bytes_ += static_cast<std::int64_t>(frame.size());
}

// Without what was written of the last frame.
void ScheduleRecorder::Fail() {
  failed_ = true;
  End(std::strerror(errno));
  if (::ftruncate(file_.get(), bytes_) != 0)
    Log().warn("{} ends within a pass, at byte {}: {}", path_, bytes_, std::strerror(errno));
}

void ScheduleRecorder::End(const std::string& why) {
  if (!ended_.exchange(true)) Log().warn("the recording of schedules in {} ends: {}", path_, why);
}

}  // namespace muster
