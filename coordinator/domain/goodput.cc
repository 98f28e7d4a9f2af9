#include "coordinator/domain/goodput.h"

#include <numeric>

namespace muster {
namespace {

std::int64_t Sum(const RankMicros& micros) {
  return std::accumulate(micros.begin(), micros.end(), std::int64_t{0});
}

}  // namespace

std::string_view Name(TimeState state) {
  static constexpr std::array<std::string_view, kTimeStateCount> kNames = {
      "step", "recompute", "checkpoint", "recovery", "hang", "queue", "idle"};
  const auto index = static_cast<std::size_t>(state);
  return index < kNames.size() ? kNames[index] : "unknown";
}

Goodput& Goodput::operator+=(const Goodput& other) {
  for (std::size_t i = 0; i < micros.size(); ++i) micros[i] += other.micros[i];
  under_way_micros += other.under_way_micros;
  return *this;
}

double Goodput::total_seconds() const { return static_cast<double>(Sum(micros)) / 1e6; }

double Goodput::ratio() const {
  const std::int64_t had = Sum(micros) - Figure(micros, TimeState::kQueue);
  if (had <= 0) return -1;
  return static_cast<double>(Figure(micros, TimeState::kStep)) / static_cast<double>(had);
}

std::vector<TimeShare> Goodput::Shares() const {
  std::vector<TimeShare> shares;
  for (int i = 0; i < kTimeStateCount; ++i) {
    const auto state = static_cast<TimeState>(i);
    shares.push_back({Name(state), static_cast<double>(Figure(micros, state)) / 1e6});
  }
  return shares;
}

}  // namespace muster
