#include "coordinator/control/rung.h"

#include <algorithm>

namespace muster {

Rung ChooseRung(const RungInput& input) {
  if (input.first) return Rung::kLaunch;
  if (input.waited) return Rung::kRequeue;
  if (input.now.size() < input.before.size()) return Rung::kShrink;
  if (input.now.size() > input.before.size()) return Rung::kGrow;
  if (!std::is_permutation(input.now.begin(), input.now.end(), input.before.begin())) {
    return Rung::kSpare;
  }
  return input.kept ? Rung::kInPlace : Rung::kRespawn;
}

bool KeepsProcesses(const KeepInput& input) {
  if (!input.train || !input.in_place || !input.retryable || input.stopping) return false;
  if (!input.formed) return false;
  const bool came_up_kept = input.rung == Rung::kInPlace || input.rung == Rung::kSpare ||
                            input.rung == Rung::kShrink || input.rung == Rung::kGrow;
  return input.stepped || !came_up_kept;
}

}  // namespace muster
