// Failure: why a rank ends, in the words of the control protocol.
//
// Plain value; any thread.
#pragma once

#include <string>

#include "common/base/status.h"

namespace muster {

struct Failure {
  std::string kind;  // peer_lost, config, data, model, nonfinite, io, out_of_memory, internal
  int exit_code = 1;
  Status status;
  // It follows from what another rank has found in itself and reports.
  bool symptom = false;
};

// What a failed collective (or forming) means.
Failure CollectiveFailure(const Status& status);
// What a file that could not be used means. `kind` is config, data or model; trouble with the disk
// itself becomes "io", for which another attempt may do better.
Failure InputFailure(const std::string& kind, const Status& status);
// The same where ranks read together: it may also be that a peer was lost.
Failure SharedInputFailure(const std::string& kind, const Status& status);
// An exception that nothing else caught.
Failure UncaughtFailure(const std::string& what);

}  // namespace muster
