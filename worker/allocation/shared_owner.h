// SharedOwner: whose the shared directory is. One srun step at a time: what another one left there,
// an earlier step, a job that had the same id before slurmctld lost count, one of another cluster,
// is put aside and not obeyed.
//
//   DIR/owner.json   {"allocation", "run", "step", "life"}
//
// A life is what belongs together: the runs of one Slurm job, which go on from one journal. Whoever
// finds the directory as another's counts one life up, and each life has a journal and keys of its
// own. All supervisors of a step come to the same record from the same one before it, so that it
// does not matter which of them writes it, or how often.
//
// JudgeOwner is pure; the rest blocks. Any thread.
#pragma once

#include <optional>
#include <string>

#include "common/base/result.h"

namespace muster::worker {

struct SharedOwner {
  std::string allocation;  // cluster and job
  int run = 0;             // how often the job was requeued
  std::string step;        // this call of srun, equal for all its tasks
  int life = 1;

  friend bool operator==(const SharedOwner&, const SharedOwner&) = default;
};

enum class Claim {
  kMine,      // of this step already
  kContinue,  // of an earlier run, or nobody's: its journal goes on
  kNewLife,   // of somebody else, whose journal does not
  kLater,     // of a later run, beside which this one must do nothing
};

// `self.life` does not matter. A later run of the same job is kLater, though it may be a job before
// this one with the same id; the caller finds out whether it lives.
Claim JudgeOwner(const std::optional<SharedOwner>& found, const SharedOwner& self);

// Nothing where there is no record, or none that can be read.
std::optional<SharedOwner> ReadOwner(const std::string& dir);

// Makes the directory `self`'s and returns its life. Where another step, or a later run, has it, it
// waits until that one's supervisors have shown no sign of life for a while. kFailedPrecondition:
// it lives.
Result<int> ClaimDirectory(const std::string& dir, const SharedOwner& self);

}  // namespace muster::worker
