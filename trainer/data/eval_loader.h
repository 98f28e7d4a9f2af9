// EvalLoader: one pass over a dataset in its order, as padded arrays, shared out among the ranks.
//
// Batch i holds rows [i * B, (i + 1) * B), the last one what is left; rank r takes batches r, r +
// W, r + 2W ... in as many rounds as the busiest rank needs, and where there is none for it an
// empty one. Every row comes once whatever B and W are, so that sums of losses and labels over all
// ranks differ by rounding alone.
//
// Refers to the dataset, which must outlive it. Immutable; any thread.
#pragma once

#include <cstdint>

#include "common/base/result.h"
#include "trainer/data/batch_loader.h"
#include "trainer/data/dataset.h"

namespace muster {

class EvalLoader {
 public:
  // A dataset with rows, rows of a batch and ranks at least 1, 0 <= rank < world_size.
  EvalLoader(const Dataset& dataset, int per_rank, int world_size, int rank, std::int32_t pad_id);

  // How often each rank takes part in a pass: equal on all of them.
  std::int64_t rounds() const;
  // 0 <= round < rounds(). What ReadBatch makes of the rows. Fails as Dataset::Read does.
  Result<MicroBatch> Get(std::int64_t round) const;
  // Labels of the whole pass over all ranks: what the summed loss is divided by.
  std::int64_t label_count() const { return dataset_.stats().label_tokens; }

 private:
  const Dataset& dataset_;
  std::int64_t per_rank_;
  std::int64_t world_size_;
  std::int64_t rank_;
  std::int32_t pad_id_;
};

}  // namespace muster
