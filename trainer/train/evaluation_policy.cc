#include "trainer/train/evaluation_policy.h"

#include <cmath>
#include <limits>

namespace muster {

bool NoteEvaluation(const EarlyStopSpec& spec, Step step, double loss, EvalHistory* history) {
  if (!std::isfinite(loss)) loss = std::numeric_limits<double>::infinity();
  history->step = step;
  history->loss = loss;
  // Measured from where it last counted, so that many small gains together count as one. Infinity
  // less min_delta is infinity: the first finite loss is better than none.
  if (loss < history->reference_loss - spec.min_delta) {
    history->reference_loss = loss;
    history->without_better = 0;
  } else {
    ++history->without_better;
  }
  if (!(loss < history->best_loss)) return false;
  history->best_loss = loss;
  history->best_step = step;
  return true;
}

bool EndsEarly(const EarlyStopSpec& spec, const EvalHistory& history) {
  return spec.patience > 0 && history.without_better >= spec.patience;
}

}  // namespace muster
