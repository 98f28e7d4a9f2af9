// PackedDataset: several rows of another dataset in each row, so that little of a batch is padding.
//
// The other's rows become documents, none of them cut, and packs of at most `length` tokens are
// its rows here. A document's last position has no label, so that nothing is predicted across a
// boundary; Documents says where attention ends.
//
// Documents are taken in windows of kPackingWindow, shuffled by the seed or in the order that they
// have; within a window the longest come first, each into the pack with the least room that has
// enough of it (best fit decreasing). Packs are made once, and an epoch shuffles packs: how many
// there are, what is in them and in what order they come follows from the rows, the length and the
// seed alone, not from ranks, steps or restarts.
//
// Owns the other dataset. About eight bytes per document. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/batch_loader.h"
#include "trainer/data/dataset.h"

namespace muster {

// Large enough to leave no room in all but the last packs, and small enough that a file's order is
// kept by and large where rows are not shuffled.
inline constexpr std::int64_t kPackingWindow = 1 << 15;

class PackedDataset : public Dataset {
 public:
  // Every row of `documents` has at most `length` tokens.
  PackedDataset(std::unique_ptr<const Dataset> documents, std::int64_t length, BatchOrder order);

  // Rows are packs; what was cut or dropped is that of the documents.
  std::int64_t size() const override { return static_cast<std::int64_t>(begins_.size()) - 1; }
  const DatasetStats& stats() const override { return stats_; }
  std::int64_t Length(std::int64_t row) const override;
  std::int64_t LabelCount(std::int64_t row) const override;
  Status Read(std::int64_t row, std::span<std::int64_t> ids,
              std::span<std::int64_t> labels) const override;
  std::vector<std::int64_t> Documents(std::int64_t row) const override;
  std::string Describe(std::span<const std::int64_t> rows) const override;
  std::uint64_t Fingerprint() const override { return fingerprint_; }
  Status Check() const override { return inner_->Check(); }

 private:
  std::span<const std::int32_t> Pack(std::int64_t row) const;
  // Appends the packs of one window.
  void PackWindow(std::span<const std::int32_t> window);

  std::unique_ptr<const Dataset> inner_;
  std::int64_t length_;
  std::vector<std::int32_t> order_;         // documents, pack by pack
  std::vector<std::int32_t> begins_ = {0};  // of packs in order_, and the end
  std::uint64_t fingerprint_ = 0;
  DatasetStats stats_;
};

}  // namespace muster
