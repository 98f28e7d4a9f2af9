// The token cache: rows of text tokenized once, in a file that every later start reads.
//
// An entry is one file, little-endian, without gaps:
//
//   header    12 words of 64 bits: "MUSTTOK2", key, files (HashOfPaths), rows, tokens, label
//   tokens,
//             truncated, split, dropped, fingerprint of the rows, hash of the index, XXH3-64 of the
//             words before
//   tokens    by row, 32 bits each (encoded_rows.h)
//   index     lengths and label counts (32 bits each), then places (64 bits), each for all rows
//
// It is written beside its place and renamed, so that there is a whole entry or none.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "trainer/data/dataset.h"
#include "trainer/data/encoded_rows.h"
#include "trainer/data/file_identity.h"

namespace muster {

// What an entry is named by, and which files it was made of (cache_key.h).
struct CacheEntryId {
  std::uint64_t key = 0;
  std::uint64_t files = 0;
};

// The id of the entry at `path`; none: it cannot be read, or its header is not whole.
std::optional<CacheEntryId> ReadEntryId(const std::string& path);

// One writer, one thread. A writer that is gone without Finish leaves nothing.
class TokenCacheWriter {
 public:
  static Result<std::unique_ptr<TokenCacheWriter>> Create(const std::string& path, CacheEntryId id);
  TokenCacheWriter(const TokenCacheWriter&) = delete;
  TokenCacheWriter& operator=(const TokenCacheWriter&) = delete;
  ~TokenCacheWriter();

  Status Add(const EncodedRows& rows);
  // Makes the entry durable and gives it its name. `on_written` is called in between.
  Status Finish(const std::function<void()>& on_written);

  const DatasetStats& stats() const { return stats_; }

 private:
  TokenCacheWriter(std::string path, std::string temporary, UniqueFd fd, CacheEntryId id);
  // The file that is written, and its name.
  static Result<std::string> MakeFile(const std::string& path, UniqueFd* fd);
  Status Append(const void* data, std::size_t bytes, const std::function<void()>& on_written = {});
  Status Flush();

  std::string path_;
  std::string temporary_;  // empty once renamed
  UniqueFd fd_;
  CacheEntryId id_;
  std::vector<char> buffer_;
  std::int64_t written_ = 0;  // bytes of the file, without the buffer's
  std::int64_t synced_ = 0;
  std::vector<std::uint32_t> lengths_;
  std::vector<std::uint32_t> labels_;
  std::vector<std::uint64_t> places_;
  RowsFingerprint fingerprint_;
  DatasetStats stats_;
};

// The rows of an entry. Eight bytes per row stay in memory; tokens are read from the file when
// their row is asked for, with one read call. Reads are used rather than a mapping because a file
// that shrinks or a disk that fails is then an error and not a signal, and because mapped pages
// would count as the rank's memory; ranks of a node share the page cache either way. The entry is
// locked, shared, as long as the object lives, and marked as used (cache_folder.h).
//
// Immutable after Open; any thread.
class CachedDataset : public Dataset {
 public:
  // Reads how long the rows are. `paths` are those of the text, for people. kNotFound: there is
  // none. kDataLoss: it is cut off, another key's, or damaged as far as that shows.
  static Result<std::unique_ptr<const CachedDataset>> Open(const std::string& path,
                                                           std::uint64_t key,
                                                           std::int64_t vocab_size,
                                                           std::vector<std::string> paths);
  // Reads the whole entry once and checks every byte of it; `on_read` is called in between.
  // kDataLoss: it is damaged. Rows of an entry that was not checked may be any ids.
  Status Verify(const std::function<void()>& on_read) const;
  // The identity of the entry that was opened, whatever has its name now.
  const FileIdentity& identity() const { return identity_; }

  std::int64_t size() const override { return stats_.rows; }
  const DatasetStats& stats() const override { return stats_; }
  std::int64_t Length(std::int64_t row) const override {
    return lengths_[static_cast<std::size_t>(row)];
  }
  std::int64_t LabelCount(std::int64_t row) const override {
    return labels_[static_cast<std::size_t>(row)];
  }
  // Any error is kUnavailable: the entry was whole when it was opened, and the next start checks it
  // (its VerifiedMark is taken away) and makes it anew.
  Status Read(std::int64_t row, std::span<std::int64_t> ids,
              std::span<std::int64_t> labels) const override;
  std::string Describe(std::span<const std::int64_t> rows) const override;
  std::uint64_t Fingerprint() const override { return fingerprint_; }
  Status Check() const override;

 private:
  CachedDataset(std::string path, UniqueFd fd, std::vector<std::string> paths);

  Status ReadHeader(std::uint64_t key);
  Status ReadLengths();
  Status CheckIndex(const std::function<void()>& on_read) const;
  Status CheckTokens(const std::function<void()>& on_read) const;
  Status ReadAt(std::int64_t offset, void* data, std::size_t bytes) const;
  void MarkUsedNowAndThen() const;
  Status Damaged(const std::string& what) const;
  Status LostInUse(const std::string& what) const;
  std::int64_t index_begin() const;
  // The place of the first token of a row, in tokens.
  std::int64_t Offset(std::int64_t row) const;

  std::string path_;
  UniqueFd fd_;
  FileIdentity identity_;
  std::vector<std::string> paths_;
  std::int64_t vocab_size_ = 0;
  std::uint64_t index_hash_ = 0;
  std::vector<std::uint32_t> lengths_;
  std::vector<std::uint32_t> labels_;
  std::vector<std::int64_t> group_offsets_;  // of every kGroupRows-th row
  std::uint64_t fingerprint_ = 0;
  DatasetStats stats_;
  // When the entry is to be marked as used again.
  mutable std::atomic<TimePoint> next_mark_ = TimePoint();
};

}  // namespace muster
