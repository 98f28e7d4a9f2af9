// What a failed rank reveals about its job, and which of several failures is the cause.
//
// Pure values and functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/wire/messages.h"
#include "coordinator/detect/hang_detector.h"
#include "coordinator/domain/records.h"

namespace muster {

// Whether a trainer reports that another rank is the cause.
bool IsSymptom(const TrainerError& error);

// One thing that went wrong in an attempt.
struct Failure {
  CauseKind kind = CauseKind::kRankExited;
  bool retryable = true;  // another attempt may do better
  int rank = -1;          // -1: not of a rank
  NodeName node;
  std::string message;  // a sentence without its full stop
  TimePoint at;         // when it happened, as far as the coordinator can determine
  std::vector<std::string> log_tail;
  // Evidence for the cause card.
  std::optional<ProcessExit> exit;
  bool out_of_memory = false;
  std::optional<TrainerError> error;
  std::optional<HangVerdict> hang;
  std::optional<RankProgress> last;
  std::vector<std::string> facts;

  // A symptom follows from another rank's end, or from its numbers; it is the cause only if there
  // is no other failure.
  bool symptom() const {
    return kind == CauseKind::kPeerLost ||
           (kind == CauseKind::kNonFinite && error && error->symptom);
  }
};

struct RankFailure {
  int rank = 0;
  NodeName node;
  bool train = true;                  // muster-trainer's exit codes apply
  std::optional<ProcessExit> exit;    // empty: reported an error and has hung since
  std::optional<TrainerError> error;  // what the trainer reported before
  bool node_stopped = false;          // ended because its node was taken down
  bool ended = false;                 // its guardian had begun to end the generation
  bool out_of_memory = false;         // the kernel's out-of-memory killer ended it
};

// Precondition: `failure.exit` is not a success, or there is an error. Leaves `at` and `log_tail`.
Failure Classify(const RankFailure& failure);

// A node that was taken down, else the first failure that is not a symptom, else the first symptom;
// ties go to the lower rank. nullptr for none.
const Failure* PrimaryFailure(const std::vector<Failure>& failures);

// Whether an exit is only what an abort does to a rank: a signal from the guardian, to a rank that
// had not reported an error of its own before.
bool IsConsequenceOfAbort(const RankFailure& failure);

// "SIGKILL", or "signal 99" for one without a name.
std::string SignalName(int signal);

}  // namespace muster
