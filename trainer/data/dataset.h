// Dataset: the rows that a job trains on, as token ids, each with the part that is trained on.
//
// Its faces: CachedDataset reads rows of text that were tokenized into a cache, TextDataset keeps
// them in memory, TokenDataset reads the rows of a .npy or .bin file; JoinedDataset is several of
// them, SubsetDataset some rows of one, PackedDataset puts several rows into one. Which rows are
// asked for, and when, is BatchLoader's affair.
//
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace muster {

// The label of a position whose prediction is not trained on.
inline constexpr std::int64_t kIgnoredLabel = -100;

struct DatasetStats {
  std::int64_t rows = 0;             // kept
  std::int64_t documents = 0;        // that packed rows were made of; 0: they are not packed
  std::int64_t truncated = 0;        // cut to max_seq_len
  std::int64_t split = 0;            // of plain text, made into several
  std::int64_t dropped = 0;          // nothing to train on left
  std::int64_t tokens = 0;           // of the kept rows
  std::int64_t label_tokens = 0;     // of the kept rows
  std::int64_t trailing_tokens = 0;  // after the last whole row of a .bin, not trained on

  friend bool operator==(const DatasetStats&, const DatasetStats&) = default;
};

// Adds what was counted of further rows.
void AddStats(const DatasetStats& more, DatasetStats* stats);

class Dataset {
 public:
  virtual ~Dataset() = default;

  // At least 1 once loaded. In what follows 0 <= row < size().
  virtual std::int64_t size() const = 0;
  virtual const DatasetStats& stats() const = 0;

  // Tokens of a row, and those among them that are predicted; both at least 1.
  virtual std::int64_t Length(std::int64_t row) const = 0;
  virtual std::int64_t LabelCount(std::int64_t row) const = 0;

  // The ids of a row and the label of each position: the id that follows it, or kIgnoredLabel. Both
  // spans are Length(row) long. A row that cannot be read, or has an id outside the model's
  // vocabulary, is an error that names file, row and position; kUnavailable: what went wrong is of
  // a file that a new start makes anew, not of the user's.
  virtual Status Read(std::int64_t row, std::span<std::int64_t> ids,
                      std::span<std::int64_t> labels) const = 0;

  // The lengths of the documents that a row holds, which sum up to its own; empty: it is one. No
  // document attends to another.
  virtual std::vector<std::int64_t> Documents(std::int64_t) const { return {}; }

  // Where these rows stand in their file, for people: "lines 3, 7-9 of train.jsonl".
  virtual std::string Describe(std::span<const std::int64_t> rows) const = 0;

  // Equal on two ranks that have the same rows before them.
  virtual std::uint64_t Fingerprint() const = 0;

  // Whether what the rows are read from is still there as it was, as far as a look at it shows; an
  // error: load the rows again before they are trained on.
  virtual Status Check() const { return OkStatus(); }
};

// "lines 3, 7-9 of train.jsonl": `one` is the word for one of them. Sorted, each once, and no more
// than a person looks at.
std::string DescribePlaces(const std::string& one, std::vector<std::int64_t> numbers,
                           const std::string& path);

}  // namespace muster
