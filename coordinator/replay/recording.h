// A recording of schedules: the file that holds passes of the scheduler, one after the other. An
// export has one.
//
//   "MUSTERSP", version (4 bytes), then for each pass: length (4), XXH3-64 (8), SchedulePass
//
// Numbers are little-endian. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "muster/v1/schedule.pb.h"

namespace muster {

inline constexpr std::int64_t kMaxRecordingBytes = 256 << 20;

// The file's first bytes; what follows them for a pass.
std::string RecordingHeader();
std::string RecordingFrame(const v1::SchedulePass& pass);
std::int64_t RecordingFrameBytes(const v1::SchedulePass& pass);

class RecordingReader {
 public:
  // `bytes` outlives it; `name`: how errors call the file.
  RecordingReader(std::string_view bytes, std::string name);

  // The next pass; false: there is none. kInvalidArgument: it is no recording, or one of a version
  // that this program does not know. kDataLoss: it ends within a pass, or is damaged there.
  Result<bool> Next(v1::SchedulePass* pass);
  int passes() const { return passes_; }      // that were read
  std::size_t offset() const { return at_; }  // behind them
  // The file ended within the pass that Next failed at, as after a crash of its writer.
  bool is_torn() const { return torn_; }
  // Where the last pass that was read is: "a.schedule, pass 2, at byte 1234".
  std::string Place() const;

 private:
  Status ReadHeader();

  std::string_view bytes_;
  std::string name_;
  std::size_t last_ = 0, at_ = 0;  // where the last pass begins, and what is behind it
  bool torn_ = false;
  int passes_ = 0;
};

}  // namespace muster
