#include "trainer/generation/stop_finder.h"

#include <algorithm>
#include <utility>

namespace muster {

std::string StopFinder::Add(std::string_view piece) {
  if (stopped_) return {};
  pending_ += piece;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    if (!stop.empty()) end = std::min(end, pending_.find(stop));
  }
  stopped_ = end != std::string::npos;
  if (!stopped_) end = pending_.size() - HeldBack();
  std::string text = pending_.substr(0, end);
  pending_.erase(0, stopped_ ? std::string::npos : end);
  return text;
}

std::string StopFinder::Rest() { return std::exchange(pending_, {}); }

// The longest end of the text that begins a stop.
std::size_t StopFinder::HeldBack() const {
  std::size_t held = 0;
  for (const std::string& stop : stops_) {
    if (stop.empty()) continue;
    for (std::size_t size = std::min(stop.size() - 1, pending_.size()); size > held; --size) {
      if (pending_.ends_with(std::string_view(stop).substr(0, size))) held = size;
    }
  }
  return held;
}

}  // namespace muster
