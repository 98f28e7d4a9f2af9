#include "trainer/data/batch_loader.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/base/check.h"

namespace muster {
namespace {

// SplitMix64 (Steele, Lea and Flood 2014): the state is a counter, so any seed is a good one.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

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

BatchLoader::BatchLoader(const Dataset& dataset, BatchGeometry geometry, BatchOrder order,
                         std::int32_t pad_id)
    : dataset_(dataset), geometry_(geometry), order_(order), pad_id_(pad_id) {
  MUSTER_CHECK(dataset.size() > 0, "a dataset without rows");
  MUSTER_CHECK(geometry.per_rank > 0 && geometry.micro_batches > 0 && geometry.world_size > 0,
               "a batch without rows");
  MUSTER_CHECK(geometry.rank >= 0 && geometry.rank < geometry.world_size, "rank out of range");
}

// Fisher-Yates from the back over 0 .. N-1. Written out because std::shuffle's draws differ
// between standard libraries, and a resumed job may run on another one.
const std::vector<std::int32_t>& BatchLoader::Permutation(std::int64_t epoch) {
  Epoch& slot = epochs_[static_cast<std::size_t>(epoch) % epochs_.size()];
  if (slot.number == epoch) return slot.rows;
  slot.number = epoch;
  slot.rows.resize(static_cast<std::size_t>(dataset_.size()));
  std::iota(slot.rows.begin(), slot.rows.end(), 0);
  if (!order_.shuffle) return slot.rows;
  SplitMix64 mix(order_.seed);
  SplitMix64 random(mix.Next() ^ SplitMix64(static_cast<std::uint64_t>(epoch)).Next());
  for (std::size_t i = slot.rows.size() - 1; i > 0; --i)
    std::swap(slot.rows[i], slot.rows[random.Below(i + 1)]);
  return slot.rows;
}

std::int64_t BatchLoader::RowAt(std::int64_t position) {
  const std::int64_t rows = dataset_.size();
  return Permutation(position / rows)[static_cast<std::size_t>(position % rows)];
}

Result<MicroBatch> BatchLoader::Get(Step step, int round) {
  MUSTER_CHECK(step >= 0 && round >= 0 && round < geometry_.rounds(), "no such micro-batch");
  const std::int64_t number = std::int64_t{round} * geometry_.world_size + geometry_.rank;
  if (number >= geometry_.micro_batches) {
    return MicroBatch{.rows = 1, .length = 1, .input_ids = {pad_id_}, .labels = {kIgnoredLabel}};
  }
  MicroBatch batch;
  batch.rows = geometry_.per_rank;
  const std::int64_t first = step * geometry_.global_batch() + number * geometry_.per_rank;
  for (std::int64_t b = 0; b < batch.rows; ++b) {
    const std::int64_t row = RowAt(first + b);
    batch.sample_ids.push_back(row);
    batch.length = std::max(batch.length, dataset_.Length(row));
    batch.label_count += dataset_.LabelCount(row);
  }
  const auto cells = static_cast<std::size_t>(batch.rows * batch.length);
  batch.input_ids.assign(cells, pad_id_);
  batch.labels.assign(cells, kIgnoredLabel);
  std::size_t cell = 0;
  for (const std::int64_t row : batch.sample_ids) {
    const auto length = static_cast<std::size_t>(dataset_.Length(row));
    MUSTER_RETURN_IF_ERROR(dataset_.Read(row, std::span(batch.input_ids).subspan(cell, length),
                                         std::span(batch.labels).subspan(cell, length)));
    cell += static_cast<std::size_t>(batch.length);
  }
  return batch;
}

std::int64_t BatchLoader::WindowLabelCount(Step step) {
  const std::int64_t batch = geometry_.global_batch();
  std::int64_t count = 0;
  for (std::int64_t p = step * batch; p < (step + 1) * batch; ++p)
    count += dataset_.LabelCount(RowAt(p));
  return count;
}

std::uint64_t BatchLoader::ChainSamples(std::uint64_t chain, Step step) {
  static_assert(std::endian::native == std::endian::little, "the chain hashes little-endian words");
  const std::int64_t batch = geometry_.global_batch();
  for (std::int64_t p = step * batch; p < (step + 1) * batch; ++p) {
    const std::uint64_t link[2] = {chain, static_cast<std::uint64_t>(RowAt(p))};
    chain = XXH3_64bits(link, sizeof link);
  }
  return chain;
}

std::int64_t BatchLoader::StepsForEpochs(double epochs) const {
  const double rows = epochs * static_cast<double>(dataset_.size());
  const double steps = std::ceil(rows / static_cast<double>(geometry_.global_batch()));
  constexpr double kForEver = 1e15;  // a number of steps that every integer type here can count on
  return static_cast<std::int64_t>(std::min(steps, kForEver));
}

double BatchLoader::EpochAt(Step step) const {
  return static_cast<double>(step) * static_cast<double>(geometry_.global_batch()) /
         static_cast<double>(dataset_.size());
}

}  // namespace muster
