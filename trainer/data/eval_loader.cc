#include "trainer/data/eval_loader.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"

namespace muster {
namespace {

std::int64_t DivideUp(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

}  // namespace

EvalLoader::EvalLoader(const Dataset& dataset, int per_rank, int world_size, int rank,
                       std::int32_t pad_id)
    : dataset_(dataset),
      per_rank_(per_rank),
      world_size_(world_size),
      rank_(rank),
      pad_id_(pad_id) {
  MUSTER_CHECK(dataset.size() > 0 && per_rank > 0, "a batch without rows");
  MUSTER_CHECK(rank >= 0 && rank < world_size, "rank out of range");
}

std::int64_t EvalLoader::rounds() const {
  return DivideUp(DivideUp(dataset_.size(), per_rank_), world_size_);
}

Result<MicroBatch> EvalLoader::Get(std::int64_t round) const {
  MUSTER_CHECK(round >= 0 && round < rounds(), "no such batch");
  const std::int64_t first = (round * world_size_ + rank_) * per_rank_;
  std::vector<std::int64_t> rows;
  for (std::int64_t row = first; row < std::min(first + per_rank_, dataset_.size()); ++row)
    rows.push_back(row);
  return ReadBatch(dataset_, std::move(rows), pad_id_);
}

}  // namespace muster
