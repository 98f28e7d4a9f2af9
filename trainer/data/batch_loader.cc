#include "trainer/data/batch_loader.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/base/check.h"
#include "trainer/data/shuffle.h"

namespace muster {
namespace {

// Ends document `length` tokens after the last one's end.
void EndDocument(std::int64_t length, std::int64_t* end, std::vector<std::int64_t>* begins) {
  if (length == 0) return;
  begins->push_back(*end);
  *end += length;
}

// Where the documents of a batch begin, the padding of each row as one of its own; empty where all
// rows are one document each.
std::vector<std::int64_t> DocumentBegins(const Dataset& dataset, const MicroBatch& batch) {
  std::vector<std::int64_t> begins;
  bool several = false;
  std::int64_t end = 0;
  for (const std::int64_t row : batch.sample_ids) {
    const std::int64_t row_end = end + batch.length;
    const std::vector<std::int64_t> documents = dataset.Documents(row);
    several = several || documents.size() > 1;
    for (const std::int64_t length : documents) EndDocument(length, &end, &begins);
    if (documents.empty()) EndDocument(dataset.Length(row), &end, &begins);
    EndDocument(row_end - end, &end, &begins);
  }
  if (!several) begins.clear();
  return begins;
}

}  // namespace

BatchLoader::BatchLoader(const Dataset& dataset, BatchGeometry geometry, BatchOrder order,
                         std::int32_t pad_id)
    : dataset_(dataset), geometry_(geometry), order_(order), pad_id_(pad_id) {
  MUSTER_CHECK(dataset.size() > 0, "a dataset without rows");
  MUSTER_CHECK(geometry.per_rank > 0 && geometry.micro_batches > 0 && geometry.world_size > 0,
               "a batch without rows");
  MUSTER_CHECK(geometry.rank >= 0 && geometry.rank < geometry.world_size, "rank out of range");
}

const std::vector<std::int32_t>& BatchLoader::Permutation(std::int64_t epoch) {
  Epoch& slot = epochs_[static_cast<std::size_t>(epoch) % epochs_.size()];
  if (slot.number == epoch) return slot.rows;
  slot.number = epoch;
  slot.rows.resize(static_cast<std::size_t>(dataset_.size()));
  std::iota(slot.rows.begin(), slot.rows.end(), 0);
  if (!order_.shuffle) return slot.rows;
  const std::uint64_t seed = ShuffleSeed(order_.seed, static_cast<std::uint64_t>(epoch));
  Shuffle(seed, &slot.rows);
  if (order_.group_by_length) GroupByLength(seed, &slot.rows);
  return slot.rows;
}

// Within a batch the longest come first, so that those of a micro-batch, and of the micro-batches
// that ranks do at one time, are alike.
void BatchLoader::GroupByLength(std::uint64_t seed, std::vector<std::int32_t>* rows) const {
  const auto batch = static_cast<std::size_t>(geometry_.global_batch());
  const auto window = batch * static_cast<std::size_t>(kGroupedBatches);
  std::vector<std::int32_t> grouped;
  grouped.reserve(rows->size());
  for (std::size_t begin = 0; begin < rows->size(); begin += window) {
    const auto part = std::span(*rows).subspan(begin, std::min(window, rows->size() - begin));
    std::stable_sort(part.begin(), part.end(), [this](std::int32_t a, std::int32_t b) {
      return dataset_.Length(a) > dataset_.Length(b);
    });
    // A short batch stays the window's last, so that the others fill steps.
    std::vector<std::int32_t> batches(part.size() / batch);
    std::iota(batches.begin(), batches.end(), 0);
    Shuffle(ShuffleSeed(seed, begin), &batches);
    if (part.size() % batch != 0) batches.push_back(static_cast<std::int32_t>(batches.size()));
    for (const std::int32_t number : batches) {
      const std::size_t at = static_cast<std::size_t>(number) * batch;
      const auto of_batch = part.subspan(at, std::min(batch, part.size() - at));
      grouped.insert(grouped.end(), of_batch.begin(), of_batch.end());
    }
  }
  *rows = std::move(grouped);
}

std::int64_t BatchLoader::RowAt(std::int64_t position) {
  const std::int64_t rows = dataset_.size();
  return Permutation(position / rows)[static_cast<std::size_t>(position % rows)];
}

Result<MicroBatch> BatchLoader::Get(Step step, int round) {
  MUSTER_CHECK(step >= 0 && round >= 0 && round < geometry_.rounds(), "no such micro-batch");
  const std::int64_t place = std::int64_t{round} * geometry_.world_size + geometry_.rank;
  if (place >= geometry_.micro_batches) return ReadBatch(dataset_, {}, pad_id_);
  const std::int64_t number = step * geometry_.micro_batches + place;
  std::vector<std::int64_t> rows;
  for (std::int64_t b = 0; b < geometry_.per_rank; ++b)
    rows.push_back(RowAt(number * geometry_.per_rank + b));
  MUSTER_ASSIGN_OR_RETURN(MicroBatch batch, ReadBatch(dataset_, std::move(rows), pad_id_));
  batch.number = number;
  return batch;
}

Result<MicroBatch> ReadBatch(const Dataset& dataset, std::vector<std::int64_t> rows,
                             std::int32_t pad_id) {
  if (rows.empty()) {
    return MicroBatch{.rows = 1,
                      .length = 1,
                      .input_ids = {pad_id},
                      .labels = {kIgnoredLabel},
                      .row_lengths = {0}};
  }
  MicroBatch batch;
  batch.rows = static_cast<std::int64_t>(rows.size());
  batch.sample_ids = std::move(rows);
  for (const std::int64_t row : batch.sample_ids) {
    batch.row_lengths.push_back(dataset.Length(row));
    batch.length = std::max(batch.length, batch.row_lengths.back());
    batch.label_count += dataset.LabelCount(row);
  }
  const auto cells = static_cast<std::size_t>(batch.rows * batch.length);
  batch.input_ids.assign(cells, pad_id);
  batch.labels.assign(cells, kIgnoredLabel);
  std::size_t cell = 0;
  for (const std::int64_t row : batch.sample_ids) {
    const auto length = static_cast<std::size_t>(dataset.Length(row));
    MUSTER_RETURN_IF_ERROR(dataset.Read(row, std::span(batch.input_ids).subspan(cell, length),
                                        std::span(batch.labels).subspan(cell, length)));
    cell += static_cast<std::size_t>(batch.length);
  }
  batch.document_begins = DocumentBegins(dataset, batch);
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
