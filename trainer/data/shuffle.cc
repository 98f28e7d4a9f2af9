#include "trainer/data/shuffle.h"

#include <cstddef>
#include <utility>

#include "trainer/core/split_mix.h"

namespace muster {
namespace {

// The state is a counter, so any seed is a good one.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Next() { return MixBits(state_ += kSplitMixStep); }

  // Uniform in [0, bound): the high half of a 128-bit product, rejecting the few draws that
  // would favour some values (Lemire 2019).
  std::uint64_t Below(std::uint64_t bound) {
    const std::uint64_t threshold = -bound % bound;
    for (;;) {
      const auto product = static_cast<unsigned __int128>(Next()) * bound;
      if (static_cast<std::uint64_t>(product) >= threshold)
        return static_cast<std::uint64_t>(product >> 64);
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace

std::uint64_t ShuffleSeed(std::uint64_t seed, std::uint64_t stream) {
  return SplitMix64(seed).Next() ^ SplitMix64(stream).Next();
}

// Fisher-Yates from the back. Written out because std::shuffle's draws differ between standard
// libraries, and a resumed job may run on another one.
void Shuffle(std::uint64_t seed, std::vector<std::int32_t>* rows) {
  SplitMix64 random(seed);
  for (std::size_t i = rows->size(); i > 1; --i)
    std::swap((*rows)[i - 1], (*rows)[random.Below(i)]);
}

}  // namespace muster
