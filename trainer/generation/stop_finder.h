// StopFinder: ends a text at the first of some strings, also one that comes in several pieces.
//
// Owned by the code that generates one text; one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster {

class StopFinder {
 public:
  // Empty strings stop nothing.
  explicit StopFinder(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // What belongs to the text for certain now that `piece` has come: nothing of a stop, and not yet
  // what may turn out to be the beginning of one.
  std::string Add(std::string_view piece);
  // Whether a stop was found. Nothing comes any more then.
  bool stopped() const { return stopped_; }
  // The end of a text that no stop has ended. Call once.
  std::string Rest();

 private:
  std::size_t HeldBack() const;

  const std::vector<std::string> stops_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace muster
