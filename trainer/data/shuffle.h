// Shuffle: an order of rows that is the same wherever and whenever it is made.
//
// Part of what a checkpoint means: docs/model-and-data.md has the rule. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace muster {

// What epoch `stream` of a job with `seed` is shuffled by.
std::uint64_t ShuffleSeed(std::uint64_t seed, std::uint64_t stream);

// No epoch's number: the order in which documents are packed.
inline constexpr std::uint64_t kPackingStream = ~std::uint64_t{0};

void Shuffle(std::uint64_t seed, std::vector<std::int32_t>* rows);

}  // namespace muster
