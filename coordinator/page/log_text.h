// LogText: a piece of a rank's log for the page: whole characters and, if reading began in the
// middle of the file, whole lines.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

struct LogBytes {
  std::string data;
  std::int64_t next_offset = 0;
  bool at_end = false;  // nothing more was there when it was read
  bool final = false;   // the rank has ended: nothing will be added
  std::string path;
};

// {"text": ..., "next_offset": ..., "at_end": ..., "final": ..., "path": ...}. An incomplete
// character is left for the next piece. `from_tail`: the request was for the end of the file.
std::string LogText(LogBytes bytes, bool from_tail);

}  // namespace muster
