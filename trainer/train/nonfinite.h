// A step whose loss or gradient is NaN or infinite: where that came from, and what becomes of the
// step.
//
// The ranks compare what each has found in itself. `nonfinite: stop` ends the job; `skip` leaves
// the weights as they are and goes on, unless that happens three times in a row or a weight itself
// is not finite, which no further step can mend. Steps that fp16's loss scale leaves out are not
// among them (StepNumbers::overflow). A step that is finite costs nothing.
//
// The trainer's thread of every rank.
#pragma once

#include <functional>
#include <string>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/train_status.h"
#include "trainer/fsdp/fsdp_engine.h"

namespace muster {

struct NonFiniteOrigin {
  int rank = -1;      // the lowest that found something; -1: none did
  int others = 0;     // that found something as well
  std::string found;  // by that rank
};

// Collective. `mine`: what this rank has found in itself, or "". Equal on all ranks.
Result<NonFiniteOrigin> CompareFindings(const std::string& mine, Communicator& world);

// "rank 1: weight of model.norm.weight; 3 other ranks have one too".
std::string DescribeOrigin(const NonFiniteOrigin& origin);

// Collective, after the FinishGradients of a step of that loss. Weights come before losses before
// gradients: each makes those behind it what they are. Of rank -1: what is not finite in the sums
// alone, or nothing. `describe` names a micro-batch of this rank, `repeat` does all of them once
// more, forward and backward.
TrainResult<NonFiniteOrigin> FindNonFinite(FsdpEngine& engine, Communicator& world, double loss,
                                           const std::function<std::string(int)>& describe,
                                           const std::function<TrainStatus()>& repeat);

struct NonFiniteStep {
  Step number = 0;  // counted from 1
  double loss = 0;
  double grad_norm = 0;
  // "rank 1: loss of micro-batch 2 (lines 41-44 of train.jsonl)", "rank 0: weight of ...",
  // "rank 1: gradient of ..."; empty: all of them are finite.
  std::string where;
  // Where the weights come from, if no update has touched them since: a path; else empty.
  std::string untouched_source;
};

// A decision of equal inputs: every rank comes to the same one.
class NonFiniteGuard {
 public:
  static constexpr int kMostInARow = 3;

  explicit NonFiniteGuard(NonFinitePolicy policy) : policy_(policy) {}

  void CountFinite() { in_a_row_ = 0; }

  struct Verdict {
    bool ends_job = false;
    std::string message;  // step, rank, tensor, and what to do
  };
  Verdict Judge(const NonFiniteStep& step);

 private:
  const NonFinitePolicy policy_;
  int in_a_row_ = 0;
};

}  // namespace muster
