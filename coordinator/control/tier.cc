#include "coordinator/control/tier.h"

#include <algorithm>

namespace muster {

Tier ChooseTier(const TierInput& input) {
  if (input.first) return Tier::kLaunch;
  if (input.waited) return Tier::kRequeue;
  if (input.now.size() < input.before.size()) return Tier::kShrink;
  if (input.now.size() > input.before.size()) return Tier::kGrow;
  if (!std::is_permutation(input.now.begin(), input.now.end(), input.before.begin())) {
    return Tier::kSpare;
  }
  return input.kept ? Tier::kInPlace : Tier::kRespawn;
}

bool KeepsProcesses(const KeepInput& input) {
  if (!input.train || !input.in_place || !input.retryable || input.stopping) return false;
  if (!input.formed) return false;
  const bool came_up_kept = input.tier == Tier::kInPlace || input.tier == Tier::kSpare ||
                            input.tier == Tier::kShrink || input.tier == Tier::kGrow;
  return input.stepped || !came_up_kept;
}

}  // namespace muster
