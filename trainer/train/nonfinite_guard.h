// NonFiniteGuard: what becomes of a step whose loss or gradient is NaN or infinite.
//
// `nonfinite: stop` ends the job; `skip` leaves the weights as they are and goes on, unless that
// happens three times in a row or a weight itself is not finite, which no further step can mend.
// Steps that fp16's loss scale leaves out are not among them (StepNumbers::overflow).
//
// A decision of equal inputs: every rank comes to the same one. Plain object of the trainer's
// thread.
#pragma once

#include <string>

#include "common/base/ids.h"
#include "common/job_spec/job_spec.h"

namespace muster {

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
