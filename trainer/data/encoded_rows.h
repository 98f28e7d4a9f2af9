// EncodedRows: rows of token ids as they are kept in memory and in the token cache.
//
// A token is a word of 32 bits: its id, and kTrainedBit where it is to be predicted. A row's first
// token never is, since nothing precedes it.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"

namespace muster {

inline constexpr std::uint32_t kTrainedBit = std::uint32_t{1} << 31;

// Where a row stands: line `line`, from 1, of file number `file` of those that were named.
struct RowPlace {
  int file = 0;
  std::int64_t line = 0;

  std::uint64_t Pack() const;
  static RowPlace Unpack(std::uint64_t packed);
};
inline constexpr int kMaxRowFiles = 1 << 16;

struct EncodedRows {
  std::vector<std::uint32_t> words;    // of all rows, one after the other
  std::vector<std::uint32_t> lengths;  // by row
  std::vector<std::uint32_t> labels;   // by row: tokens that are predicted, at least 1
  std::vector<std::uint64_t> places;   // by row: RowPlace::Pack
  DatasetStats stats;

  // Adds a row with one word per token, or counts it as dropped where nothing of it is predicted.
  void Add(std::span<const std::uint32_t> row, RowPlace place);
};

// The ids of a row, and the label of each position: the id that follows it, or kIgnoredLabel. All
// spans are equally long.
void UnpackRow(std::span<const std::uint32_t> words, std::span<std::int64_t> ids,
               std::span<std::int64_t> labels);

// A running hash of rows in their order: of their words and of where each ends.
class RowsFingerprint {
 public:
  void Add(std::span<const std::uint32_t> row);
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

// "lines 3, 7-9 of a.jsonl, line 2 of b.jsonl"; `paths` are those of the files, by number.
std::string DescribeRowPlaces(std::span<const RowPlace> places,
                              const std::vector<std::string>& paths);

}  // namespace muster
