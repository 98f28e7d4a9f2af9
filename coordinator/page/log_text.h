// LogText: a piece of a rank's log as the page shows it: whole characters and, where reading began
// in the middle of the file, whole lines.
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

// {"text": ..., "next_offset": ..., "at_end": ..., "final": ..., "path": ...}. A character that is
// not all there yet is left for the next piece. `from_tail`: it was asked for from the end of the
// file on.
std::string LogText(LogBytes bytes, bool from_tail);

}  // namespace muster
