// MergeTable: which neighbours of a piece's symbols become one, and in which order.
//
// Merges the neighbours of lowest rank until none is left, leftmost first among equals. n symbols
// cost O(n log n), however long the piece is: where there is no pre-tokenizer it is a whole text.
//
// Owned by Bpe. Immutable after Add; any thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace muster {

class MergeTable {
 public:
  void Reserve(std::size_t merges) { merges_.reserve(merges); }

  // `left` and `right` become `id`; of two merges of one pair the later counts. Merges of equal
  // rank are made from left to right.
  void Add(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t id);

  // Merges `ids` in place, which are fewer than 2^31.
  void Apply(std::vector<std::int32_t>* ids) const;

 private:
  struct Merge {
    std::int32_t rank = 0;
    std::int32_t id = 0;
  };
  class Pass;

  const Merge* Find(std::int32_t left, std::int32_t right) const;

  std::unordered_map<std::uint64_t, Merge> merges_;
};

}  // namespace muster
