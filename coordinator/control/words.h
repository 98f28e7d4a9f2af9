// Texts for the sentences of events and reasons.
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace muster {

// Text from other programs is kept up to this length: in a reason, and in an event's sentence that
// contains one.
inline constexpr std::size_t kMaxReasonBytes = 1000;
inline constexpr std::size_t kMaxTextBytes = 2000;
inline constexpr std::size_t kMaxNoteBytes = 1000;  // of a note, or a line of a log

std::string SecondsText(double seconds);     // "0.71 s", "2 min 5 s"
std::string BytesText(std::uint64_t bytes);  // "12.3 MB"

}  // namespace muster
