// The gradient of an embedding table: rows of a batch gathered up by the word that they belong to.
//
// Pure; any thread. No Torch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/core/element.h"

namespace muster {

// A word that occurs in a batch, and its places there, in order.
struct WordPlaces {
  std::int64_t word = 0;
  std::int64_t begin = 0;  // of `places`
  std::int64_t end = 0;
};

struct WordIndex {
  std::vector<WordPlaces> words;     // ascending
  std::vector<std::int64_t> places;  // positions in `ids`
};
WordIndex IndexWords(std::span<const std::int64_t> ids);

// Adds up the rows at places [begin, end) in order.
template <typename Element>
struct PlacedRows {
  std::int64_t width = 0;
  const Element* values = nullptr;  // [rows, width]
  const std::int64_t* places = nullptr;
  Wide<Element>* sum = nullptr;  // [width], written
};
template <typename Element>
void SumPlaced(const PlacedRows<Element>& rows, std::int64_t begin, std::int64_t end);

}  // namespace muster
