// SubsetDataset: some rows of another dataset, in its order; and the split into rows to train on
// and rows to evaluate on.
//
// Shares the other one with its other owners. Four bytes per row of its own. Immutable; any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/dataset.h"

namespace muster {

class SubsetDataset : public Dataset {
 public:
  // `rows` ascend, are rows of `whole`, and are at least one. Counts of what was cut or dropped
  // are those of `whole`.
  SubsetDataset(std::shared_ptr<const Dataset> whole, std::vector<std::int32_t> rows);

  std::int64_t size() const override { return static_cast<std::int64_t>(rows_.size()); }
  const DatasetStats& stats() const override { return stats_; }
  std::int64_t Length(std::int64_t row) const override { return whole_->Length(At(row)); }
  std::int64_t LabelCount(std::int64_t row) const override { return whole_->LabelCount(At(row)); }
  Status Read(std::int64_t row, std::span<std::int64_t> ids,
              std::span<std::int64_t> labels) const override {
    return whole_->Read(At(row), ids, labels);
  }
  std::vector<std::int64_t> Documents(std::int64_t row) const override {
    return whole_->Documents(At(row));
  }
  std::string Describe(std::span<const std::int64_t> rows) const override;
  std::uint64_t Fingerprint() const override { return fingerprint_; }
  Status Check() const override { return whole_->Check(); }

 private:
  std::int64_t At(std::int64_t row) const { return rows_[static_cast<std::size_t>(row)]; }

  std::shared_ptr<const Dataset> whole_;
  std::vector<std::int32_t> rows_;
  std::uint64_t fingerprint_ = 0;
  DatasetStats stats_;
};

struct SplitRows {
  std::unique_ptr<const Dataset> train;
  std::unique_ptr<const Dataset> eval;
};

// A row is evaluated on if a hash of its number and the seed says so, about `ratio` of all; 0 <
// ratio < 1. It depends on nothing else, so that every rank and every restart splits alike.
// kInvalidArgument: one side would have no row.
Result<SplitRows> SplitByRatio(std::shared_ptr<const Dataset> whole, double ratio,
                               std::uint64_t seed);

}  // namespace muster
