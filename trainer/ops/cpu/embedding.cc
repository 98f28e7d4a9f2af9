#include "trainer/ops/embedding.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "trainer/core/convert.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster::op {
namespace {

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

// Adds up the rows at `places`, in order; sum [H] W, written.
MUSTER_VECTOR_CLONES
void SumPlaced(const EmbeddingBackward& e, std::span<const std::int64_t> places, void* to) {
  WithElement(e.gradient.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::int64_t width = e.gradient.width();
    Wide<T>* __restrict sum = static_cast<Wide<T>*>(to);
    std::fill_n(sum, width, Wide<T>{0});
    for (const std::int64_t place : places) {
      const T* __restrict values = e.gradient.data<T>() + place * width;
      for (std::int64_t i = 0; i < width; ++i) sum[i] += Load(values[i]);
    }
  });
}

}  // namespace

void RunOnCpu(const EmbeddingBackward& e) {
  const Array& table = e.table_gradient.array;
  const std::int64_t width = e.gradient.width(), words = table.rows();
  const WordIndex index =
      IndexWords({e.ids.data<std::int64_t>(), static_cast<std::size_t>(e.ids.count())});
  const auto word = [&](std::int64_t i) { return index.words[static_cast<std::size_t>(i)]; };
  const std::int64_t present = std::ssize(index.words);
  if (present > 0 && (word(0).word < 0 || word(present - 1).word >= words)) {
    Refuse("an id is not one of the " + std::to_string(words) + " words of the vocabulary");
  }
  std::byte* rows = table.data<std::byte>();
  const std::int64_t row_bytes = width * static_cast<std::int64_t>(ElementSize(table.type()));
  const auto zero = [&](std::int64_t begin, std::int64_t end) {
    if (!e.table_gradient.add)
      std::fill(rows + begin * row_bytes, rows + end * row_bytes, std::byte{0});
  };
  zero(present == 0 ? 0 : word(present - 1).word + 1, words);
  const ElementType wide = WideType(e.gradient.type());
  OverRows(present, width, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::byte> sum(static_cast<std::size_t>(width) * ElementSize(wide));
    for (std::int64_t i = begin; i < end; ++i) {
      zero(i == 0 ? 0 : word(i - 1).word + 1, word(i).word);
      const std::int64_t* const places = index.places.data();
      SumPlaced(e, {places + word(i).begin, places + word(i).end}, sum.data());
      muster::Convert(sum.data(), wide, rows + word(i).word * row_bytes, table.type(), width,
                      e.table_gradient.add);
    }
  });
}

}  // namespace muster::op

template void muster::CpuKernel<muster::op::EmbeddingBackward>(const void*);
