// SplitMix64 (Steele, Lea and Flood 2014): random numbers as a function of a counter, so that equal
// ones come on every machine. Pure; any thread.
#pragma once

#include <cstdint>

namespace muster {

// The step of its counter.
inline constexpr std::uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;

// The number at one place of the counter; neighbours have nothing in common.
constexpr std::uint64_t MixBits(std::uint64_t counter) {
  std::uint64_t z = counter;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace muster
