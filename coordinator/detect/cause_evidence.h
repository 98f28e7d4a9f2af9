// CauseEvidence: what an attempt's cause card is made from. A value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/wire/messages.h"
#include "coordinator/detect/hang_detector.h"
#include "coordinator/domain/records.h"

namespace muster {

// All that is known of the failure that ended an attempt; unknown fields stay empty.
struct CauseEvidence {
  CauseKind kind = CauseKind::kNone;
  std::string message;  // the cause as a sentence
  NodeName node;
  int world_size = 1;               // of the attempt
  std::optional<ProcessExit> exit;  // of the first failing rank, if it ended on its own
  bool out_of_memory = false;       // the kernel's out-of-memory killer ended it
  std::optional<TrainerError> error;
  std::optional<HangVerdict> hang;
  std::optional<RankProgress> last;  // its page at the end
  std::vector<std::string> facts;    // of device and host
  std::vector<std::string> log_tail;
};

}  // namespace muster
