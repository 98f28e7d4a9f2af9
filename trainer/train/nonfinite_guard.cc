#include "trainer/train/nonfinite_guard.h"

#include <cmath>

namespace muster {
namespace {

bool IsWeight(const NonFiniteStep& step) {
  return step.where.find(": weight of ") != std::string::npos;
}

// A NaN's sign says nothing, and differs between processors.
std::string Text(double value) { return std::isnan(value) ? "nan" : std::to_string(value); }

std::string WhatHappened(const NonFiniteStep& step) {
  std::string text = "step " + std::to_string(step.number) + ": loss is " + Text(step.loss) +
                     " and gradient norm is " + Text(step.grad_norm);
  if (step.where.empty()) return text + "; every weight and gradient is finite by itself";
  return text + "; not finite is " + step.where;
}

// The learning rate is no matter as long as nothing has been learnt.
std::string Advice(const NonFiniteStep& step) {
  if (IsWeight(step)) {
    return step.untouched_source.empty()
               ? "an update has made it so: lower train.optimizer.lr"
               : "it is so in " + step.untouched_source + ", which this training began with";
  }
  if (!step.untouched_source.empty())
    return "no update has been made yet: look at the rows of this step, and whether the weights "
           "of " +
           step.untouched_source + " are in the range of train.fsdp.mixed_precision";
  return "lower train.optimizer.lr, or look at the rows of this step";
}

}  // namespace

NonFiniteGuard::Verdict NonFiniteGuard::Judge(const NonFiniteStep& step) {
  ++in_a_row_;
  const std::string what = WhatHappened(step);
  if (policy_ == NonFinitePolicy::kStop || IsWeight(step))
    return {.ends_job = true, .message = what + "; " + Advice(step)};
  if (in_a_row_ >= kMostInARow)
    return {.ends_job = true,
            .message = what + "; it is the third such step in a row; " + Advice(step)};
  return {.message = what + "; the step is skipped"};
}

}  // namespace muster
