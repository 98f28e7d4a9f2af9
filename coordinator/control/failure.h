// What a failed rank says about its job, and which of several failures is the cause.
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

// Whether a trainer says that another rank is the cause.
bool IsSymptom(const TrainerError& error);

// One thing that went wrong in an attempt.
struct Failure {
  CauseKind kind = CauseKind::kRankExited;
  bool retryable = true;  // another attempt may do better
  int rank = -1;          // -1: not of a rank
  NodeName node;
  std::string message;  // a sentence without its full stop
  TimePoint at;         // when it happened, as well as the coordinator can know
  std::vector<std::string> log_tail;
  // What the cause card is made of.
  std::optional<ProcessExit> exit;
  bool out_of_memory = false;
  std::optional<TrainerError> error;
  std::optional<HangVerdict> hang;
  std::optional<RankProgress> last;
  std::vector<std::string> facts;

  // A symptom follows from another rank's end, or from its numbers; it is the cause only where
  // nothing else is.
  bool symptom() const {
    return kind == CauseKind::kPeerLost ||
           (kind == CauseKind::kNonFinite && error && error->symptom);
  }
};

struct RankFailure {
  int rank = 0;
  NodeName node;
  bool train = true;                  // muster-trainer's exit codes mean something
  std::optional<ProcessExit> exit;    // nothing: reported an error and hangs since
  std::optional<TrainerError> error;  // what the trainer said before
  bool node_stopped = false;          // ended because its node was taken down
  bool ended = false;                 // its guardian had begun to end the generation
  bool out_of_memory = false;         // the kernel's out-of-memory killer ended it
};

// Precondition: `failure.exit` is not a success, or there is an error. Leaves `at` and `log_tail`.
Failure Classify(const RankFailure& failure);

// A node that was taken down, else the first failure that is not a symptom, else the first symptom;
// ties go to the lower rank. nullptr for none.
const Failure* PrimaryFailure(const std::vector<Failure>& failures);

// Whether an exit is what an abort does to a rank, and no news: a signal of the guardian's, to a
// rank that had not said before that something was wrong with itself.
bool IsConsequenceOfAbort(const RankFailure& failure);

// "SIGKILL", or "signal 99" for one without a name.
std::string SignalName(int signal);

}  // namespace muster
