// JoinedDataset: the rows of several datasets, one dataset after the other.
//
// Owns them. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/dataset.h"

namespace muster {

class JoinedDataset : public Dataset {
 public:
  // At least one, and no more than 2^31 rows in all.
  explicit JoinedDataset(std::vector<std::unique_ptr<const Dataset>> parts);

  std::int64_t size() const override { return stats_.rows; }
  const DatasetStats& stats() const override { return stats_; }
  std::int64_t Length(std::int64_t row) const override;
  std::int64_t LabelCount(std::int64_t row) const override;
  Status Read(std::int64_t row, std::span<std::int64_t> ids,
              std::span<std::int64_t> labels) const override;
  std::vector<std::int64_t> Documents(std::int64_t row) const override;
  std::string Describe(std::span<const std::int64_t> rows) const override;
  std::uint64_t Fingerprint() const override { return fingerprint_; }
  Status Check() const override;

 private:
  // The part that has a row, by number, and which one it is of that part.
  std::pair<std::size_t, std::int64_t> Find(std::int64_t row) const;

  std::vector<std::unique_ptr<const Dataset>> parts_;
  std::vector<std::int64_t> begins_;  // of parts_, in rows
  std::uint64_t fingerprint_ = 0;
  DatasetStats stats_;
};

}  // namespace muster
