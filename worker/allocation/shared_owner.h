// SharedOwner: the owner of the shared directory. One srun step at a time: what another one left
// there, an earlier step, a job that had the same id before slurmctld lost count, one of another
// cluster, is moved aside and ignored.
//
//   DIR/owner.json   {"allocation", "run", "step", "life"}
//
// A life is a series of runs of one Slurm job, which continue from one journal. A supervisor that
// finds the directory with another owner starts the next life, and each life has a journal and keys
// of its own. All supervisors of a step derive the same record from the same previous one, so that
// it does not matter which of them writes it, or how often.
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
  kContinue,  // of an earlier run, or unowned: its journal goes on
  kNewLife,   // of another owner, whose journal does not
  kLater,     // of a later run, beside which this one must do nothing
};

// `self.life` does not matter. A later run of the same job is kLater, though it may be a job before
// this one with the same id; the caller determines whether it lives.
Claim JudgeOwner(const std::optional<SharedOwner>& found, const SharedOwner& self);

// Empty if there is no record, or none that can be read.
std::optional<SharedOwner> ReadOwner(const std::string& dir);

// Where the scheduler does not count how often it has started a job again.
struct FoundRun {
  int run = 0;               // which a task belongs to that starts now
  std::optional<int> ended;  // the job is over, with this exit code
};

// A task of `step` joins the run that it finds, as one that takes a lost task's place; it begins
// the next one if that run has ended with work left.
FoundRun FindRun(const std::string& dir, const std::string& allocation, const std::string& step);

// Makes `self` the owner of the directory and returns its life. If another step, or a later run,
// owns it, it waits until that one's supervisors have shown no sign of life for a while.
// kFailedPrecondition: it lives.
Result<int> ClaimDirectory(const std::string& dir, const SharedOwner& self);

}  // namespace muster::worker
