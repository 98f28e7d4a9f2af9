// TokenDataset: rows of token ids that lie ready in a file, all of one length and trained on whole.
//
//   .npy   an array [rows, length] of little-endian u2, u4, i4 or i8 in C order
//   .bin   ids without a header, cut into rows of max_seq_len: 16 bits each where the model's
//          vocabulary has 65,536 words at most, 32 bits where it has more
//
// Nothing of the file stays in memory: a row is read when it is asked for, with one read call, so
// that files of any size take no more than a row. Reads are used rather than a mapping because a
// file that shrinks or a disk that fails is then an error and not a signal, and because mapped
// pages would count as the rank's memory.
//
// Immutable after Open; any thread. Errors name the file and what is wrong with it. At the start
// some pages spread over the file are looked at; every id is checked when its row is read.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "trainer/data/dataset.h"

namespace muster {

struct TokenDatasetOptions {
  std::int64_t max_seq_len = 2048;  // longer rows of a .npy are cut; the row length of a .bin
  std::int64_t vocab_size = 0;      // rows of the model's embedding; a larger id is an error
};

// Whether the name says that the file holds token ids.
bool IsTokenFile(const std::string& path);

class TokenDataset : public Dataset {
 public:
  // `path` ends in .npy or .bin.
  static Result<TokenDataset> Open(const std::string& path, const TokenDatasetOptions& options);

  std::int64_t size() const override { return stats_.rows; }
  const DatasetStats& stats() const override { return stats_; }
  std::int64_t Length(std::int64_t) const override { return row_length_; }
  std::int64_t LabelCount(std::int64_t) const override { return row_length_ - 1; }
  Status Read(std::int64_t row, std::span<std::int64_t> ids,
              std::span<std::int64_t> labels) const override;
  std::string Describe(std::span<const std::int64_t> rows) const override;
  // Covers the file's size and shape and the pages that Open has looked at; hashing terabytes would
  // take longer than it is worth.
  std::uint64_t Fingerprint() const override { return fingerprint_; }

 private:
  enum class IdType { kU16, kU32, kI32, kI64 };

  TokenDataset(std::string path, UniqueFd fd, const TokenDatasetOptions& options);

  Status ReadNpyLayout(std::int64_t file_bytes);
  Status ReadBinLayout(std::int64_t file_bytes);
  Status FinishLayout();
  // Looks at pages spread over the file: checks their ids and hashes them.
  Status Sample(std::int64_t file_bytes);
  Status ReadIds(std::int64_t first, std::span<std::int64_t> ids) const;
  Status CheckIds(std::int64_t first, std::span<const std::int64_t> ids) const;
  std::int64_t id_bytes() const;

  std::string path_;
  UniqueFd fd_;
  TokenDatasetOptions options_;
  IdType type_ = IdType::kU16;
  std::int64_t data_begin_ = 0;  // bytes
  std::int64_t stride_ = 0;      // ids from one row to the next
  std::int64_t row_length_ = 0;  // of them, that are trained on
  std::uint64_t fingerprint_ = 0;
  DatasetStats stats_;
};

}  // namespace muster
