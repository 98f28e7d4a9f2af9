#include "trainer/core/split_mix.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

// The two first numbers of the published generator for the seed 1234567. Orders of rows and new
// adapters are made of them: other ones would change every run.
TEST(SplitMix, GivesThePublishedNumbers) {
  constexpr std::uint64_t kSeed = 1234567;
  EXPECT_EQ(MixBits(kSeed + kSplitMixStep), 6457827717110365317u);
  EXPECT_EQ(MixBits(kSeed + 2 * kSplitMixStep), 3203168211198807973u);
}

}  // namespace
}  // namespace muster
