// TextDataset: the rows of files of text, tokenized and kept in memory.
//
// For jobs without a token cache (data.cache: none, or a disk that takes none), and for tests: four
// bytes per token and 24 per row, in every rank. The forms of rows are RowEncoder's.
//
// Immutable after Load; any thread. Errors name the file, the line and what is wrong with it;
// nothing is skipped silently: rows cut to max_seq_len and rows left without a label are counted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/dataset.h"
#include "trainer/data/encode_files.h"
#include "trainer/data/encoded_rows.h"
#include "trainer/data/row_encoder.h"

namespace muster {

class TextDataset : public Dataset {
 public:
  static Result<TextDataset> Load(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                                  const TextOptions& options, const EncodeRun& run = {});

  std::int64_t size() const override { return stats_.rows; }
  const DatasetStats& stats() const override { return stats_; }
  std::int64_t Length(std::int64_t row) const override;
  std::int64_t LabelCount(std::int64_t row) const override {
    return rows_.labels[static_cast<std::size_t>(row)];
  }
  // Never fails: all ids were checked by Load.
  Status Read(std::int64_t row, std::span<std::int64_t> ids,
              std::span<std::int64_t> labels) const override;
  std::string Describe(std::span<const std::int64_t> rows) const override;
  // Covers all rows; that of a CachedDataset with the same ones is equal.
  std::uint64_t Fingerprint() const override { return fingerprint_.value(); }

  std::vector<std::int32_t> Ids(std::int64_t row) const;
  // One per id: 1 where that token is to be predicted. The first is always 0.
  std::vector<std::uint8_t> Trained(std::int64_t row) const;

  void Add(const EncodedRows& rows);
  // Adds a row. `trained` has one entry per id, 1 where it is trained on; a row without a label is
  // counted as dropped. `line` of the file, from 1.
  void Add(std::span<const std::int32_t> ids, std::span<const std::uint8_t> trained,
           std::int64_t line = 0);

 private:
  std::span<const std::uint32_t> Words(std::int64_t row) const;

  std::vector<std::string> paths_;
  EncodedRows rows_;
  std::vector<std::int64_t> offsets_ = {0};  // row r is [offsets_[r], offsets_[r + 1])
  RowsFingerprint fingerprint_;
  DatasetStats stats_;
};

// Why there is nothing to train on in these files.
Status NoRowsLeft(const std::vector<std::string>& paths, const DatasetStats& stats,
                  std::int64_t max_seq_len);

}  // namespace muster
