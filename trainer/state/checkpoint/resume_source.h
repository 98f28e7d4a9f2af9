// Where the state that a rank begins with came from, and what was passed over on the way.
//
// Plain values; any thread.
#pragma once

#include <string>

namespace muster {

// A checkpoint that was tried and not used.
struct RejectedCheckpoint {
  std::string directory;
  std::string reason;
};

// Where the state that a rank begins with came from.
enum class ResumeSource { kStart, kCheckpoint, kSnapshot };

}  // namespace muster
