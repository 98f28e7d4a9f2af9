// BatchLoader: which rows a rank trains on at a step, as padded arrays.
//
// A pure function of (dataset, geometry, seed, step, micro-batch): no state advances, so a resumed
// job needs nothing but the step number and reads exactly what an undisturbed one would have. The
// global order does not depend on the number of ranks W, only on the global batch G = B * M, where
// a step has M micro-batches of B rows: step s trains on positions [s * G, (s + 1) * G) of it.
// Position p is row permutation(p / N)[p % N] of the N rows, where permutation(epoch) depends on
// seed and epoch alone. Within a step, rank r takes micro-batches r, r + W, r + 2W ... in as many
// rounds as the busiest rank needs; row b of round m of rank r is position (m * W + r) * B + b, and
// where there is no such micro-batch the rank gets an empty one.
//
// Refers to the dataset, which must outlive it. One thread: it keeps the last permutations.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "trainer/data/dataset.h"

namespace muster {

struct BatchGeometry {
  int per_rank = 1;       // rows of a micro-batch
  int micro_batches = 1;  // of a step, over all ranks
  int world_size = 1;
  int rank = 0;

  // Micro-batches of a step that each rank takes part with.
  int rounds() const { return (micro_batches + world_size - 1) / world_size; }
  std::int64_t global_batch() const { return std::int64_t{per_rank} * micro_batches; }
};

struct BatchOrder {
  std::uint64_t seed = 0;
  bool shuffle = true;
  // Rows of like length come into one global batch, where they are shuffled: within windows of
  // kGroupedBatches of them, whose order is shuffled again. Depends on G, not on the ranks.
  bool group_by_length = false;
};
inline constexpr std::int64_t kGroupedBatches = 50;

struct MicroBatch {
  // Its place among all micro-batches of a training, step * M + its place in the step: the same at
  // every number of ranks. -1: of no training, or empty.
  std::int64_t number = -1;
  std::int64_t rows = 0;
  std::int64_t length = 0;              // of the longest row; shorter ones are padded on the right
  std::vector<std::int64_t> input_ids;  // [rows, length]
  // [rows, length]; labels[t] is the id that follows position t, or kIgnoredLabel.
  std::vector<std::int64_t> labels;
  std::int64_t label_count = 0;  // labels that are not ignored
  // The first positions of the documents, in [0, rows * length), ascending and from 0 on: the next
  // one's is where a document ends, and no row's document goes on in the next row. What a row is
  // padded with is a document as well. Empty: each row is one document with its padding.
  std::vector<std::int64_t> document_begins = {};
  // Tokens of each row before its padding; empty: rows have none.
  std::vector<std::int64_t> row_lengths = {};
  std::vector<std::int64_t> sample_ids;  // row numbers in the dataset
};

// Rows of a dataset as a padded batch; without rows one row of padding, no label and no sample.
// Fails as Dataset::Read does.
Result<MicroBatch> ReadBatch(const Dataset& dataset, std::vector<std::int64_t> rows,
                             std::int32_t pad_id);

class BatchLoader {
 public:
  // Preconditions: a dataset with rows, positive geometry, 0 <= rank < world_size.
  BatchLoader(const Dataset& dataset, BatchGeometry geometry, BatchOrder order,
              std::int32_t pad_id);

  const BatchGeometry& geometry() const { return geometry_; }

  // Step numbers count finished steps: Get(0, m) is the first one's; 0 <= round < rounds(). What
  // ReadBatch makes of the rows, of none where the rank has no micro-batch in this round.
  Result<MicroBatch> Get(Step step, int round);

  // Labels of the whole global batch of a step, over all ranks and micro-batches.
  std::int64_t WindowLabelCount(Step step);

  // The hash chain `chain` extended by the ids of all samples of a step, in global order. Two runs
  // with equal chains have trained on the same samples in the same order.
  std::uint64_t ChainSamples(std::uint64_t chain, Step step);

  // The smallest number of steps that reads the dataset `epochs` times.
  std::int64_t StepsForEpochs(double epochs) const;
  // How often the dataset has been read before `step`.
  double EpochAt(Step step) const;

 private:
  struct Epoch {
    std::int64_t number = -1;
    std::vector<std::int32_t> rows;
  };

  std::int64_t RowAt(std::int64_t position);
  const std::vector<std::int32_t>& Permutation(std::int64_t epoch);
  void GroupByLength(std::uint64_t seed, std::vector<std::int32_t>* rows) const;

  const Dataset& dataset_;
  BatchGeometry geometry_;
  BatchOrder order_;
  std::int32_t pad_id_;
  std::array<Epoch, 2> epochs_;  // a step lies in at most two epochs unless the dataset is tiny
};

}  // namespace muster
