// SplitBehavior: what becomes of the matches when a text is split at them.
//
// For "a--b" split at "-":
//   removed               a b
//   isolated              a - - b
//   contiguous            a -- b
//   merged with previous  a- - b
//   merged with next      a - -b
//
// Pure values; any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

enum class SplitBehavior { kRemoved, kIsolated, kContiguous, kMergedWithPrevious, kMergedWithNext };

// As a tokenizer.json spells it: "MergedWithNext".
std::optional<SplitBehavior> SplitBehaviorOf(const std::string& name);

// Makes pieces of the matches and gaps of one text, which come in order and adjoin each other.
// Lives for one text.
class PieceJoiner {
 public:
  using Sink = std::function<void(std::string_view piece)>;

  // `sink` outlives the joiner and gets no empty pieces.
  PieceJoiner(SplitBehavior behavior, const Sink& sink) : behavior_(behavior), sink_(sink) {}

  void Add(std::string_view part, bool is_match);
  // After the last part.
  void Finish();

 private:
  bool JoinsHeld(bool is_match) const;

  SplitBehavior behavior_;
  const Sink& sink_;
  std::string_view held_;  // a piece that the next part may join
  bool holds_ = false;
  bool held_ends_in_match_ = false;
};

}  // namespace muster
