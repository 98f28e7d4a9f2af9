#include "trainer/text/tokenizer/split_behavior.h"

namespace muster {

std::optional<SplitBehavior> SplitBehaviorOf(const std::string& name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  return std::nullopt;
}

bool PieceJoiner::JoinsHeld(bool is_match) const {
  if (!holds_) return false;
  switch (behavior_) {
    case SplitBehavior::kContiguous: return is_match == held_ends_in_match_;
    case SplitBehavior::kMergedWithPrevious: return is_match && !held_ends_in_match_;
    case SplitBehavior::kMergedWithNext: return !is_match && held_ends_in_match_;
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated: return false;
  }
  return false;
}

void PieceJoiner::Add(std::string_view part, bool is_match) {
  if (part.empty() || (is_match && behavior_ == SplitBehavior::kRemoved)) return;
  if (JoinsHeld(is_match)) {
    held_ = std::string_view(held_.data(), held_.size() + part.size());
  } else {
    if (holds_) sink_(held_);
    held_ = part;
  }
  holds_ = true;
  held_ends_in_match_ = is_match;
}

void PieceJoiner::Finish() {
  if (holds_) sink_(held_);
  holds_ = false;
}

}  // namespace muster
