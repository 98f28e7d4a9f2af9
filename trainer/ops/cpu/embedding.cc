#include "trainer/ops/cpu/embedding.h"

#include <algorithm>
#include <numeric>

#include "trainer/core/vector_clones.h"

namespace muster {
namespace {

template <typename T>
MUSTER_INLINE void SumRows(const PlacedRows<T>& r, std::int64_t begin, std::int64_t end) {
  Wide<T>* __restrict sum = r.sum;
  std::fill_n(sum, r.width, Wide<T>{0});
  for (std::int64_t place = begin; place < end; ++place) {
    const T* __restrict values = r.values + r.places[place] * r.width;
    for (std::int64_t i = 0; i < r.width; ++i) sum[i] += Load(values[i]);
  }
}

}  // namespace

WordIndex IndexWords(std::span<const std::int64_t> ids) {
  WordIndex index;
  index.places.resize(ids.size());
  std::iota(index.places.begin(), index.places.end(), 0);
  const auto word = [ids](std::int64_t place) { return ids[static_cast<std::size_t>(place)]; };
  std::stable_sort(index.places.begin(), index.places.end(),
                   [&](std::int64_t a, std::int64_t b) { return word(a) < word(b); });
  for (std::int64_t at = 0; at < std::ssize(ids); ++at) {
    const std::int64_t here = word(index.places[static_cast<std::size_t>(at)]);
    if (index.words.empty() || index.words.back().word != here) {
      index.words.push_back({.word = here, .begin = at, .end = at});
    }
    index.words.back().end = at + 1;
  }
  return index;
}

MUSTER_ROWS_KERNEL(SumPlaced, PlacedRows, SumRows)

}  // namespace muster
