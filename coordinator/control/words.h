// Texts for the sentences of events and reasons.
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "coordinator/control/node_backoff.h"
#include "coordinator/scheduler/wait_reason.h"

namespace muster {

// Text from other programs is kept up to this length: in a reason, and in an event's sentence that
// contains one.
inline constexpr std::size_t kMaxReasonBytes = 1000;
inline constexpr std::size_t kMaxTextBytes = 2000;
inline constexpr std::size_t kMaxNoteBytes = 1000;  // of a note, or a line of a log

std::string SecondsText(double seconds);     // "0.71 s", "2 min 5 s"
std::string BytesText(std::uint64_t bytes);  // "12.3 MB"

// Why a job waits for a gang: for slots, and because nodes refused it.
std::string WaitingText(const WaitReason& reason, const NodeBackoff& backoff);

}  // namespace muster
