// Random: the only source of chance in a simulation. The same seed gives the same numbers on every
// machine and with every standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/clock.h"

namespace muster::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // SplitMix64 (Steele, Lea, Flood 2014).
  std::uint64_t Next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // 0 .. below - 1; below > 0.
  int Pick(int below) { return static_cast<int>(Next() % static_cast<std::uint64_t>(below)); }
  int Between(int low, int high) { return low + Pick(high - low + 1); }
  bool Chance(double probability) {
    return static_cast<double>(Next() >> 11) * 0x1p-53 < probability;
  }
  // Uniform between the two.
  Duration Delay(Duration low, Duration high) {
    const auto span = static_cast<std::uint64_t>((high - low).count()) + 1;
    return low + Duration(static_cast<std::int64_t>(Next() % span));
  }
  template <typename Value>
  Value& Any(std::vector<Value>& values) {
    return values[static_cast<std::size_t>(Pick(static_cast<int>(values.size())))];
  }

 private:
  std::uint64_t state_;
};

// For state hashes.
inline std::uint64_t Mix(std::uint64_t hash, std::uint64_t value) {
  std::uint64_t z = hash ^ (value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2));
  z = (z ^ (z >> 31)) * 0x7fb5d329728ea185ull;
  return z ^ (z >> 27);
}

}  // namespace muster::sim
