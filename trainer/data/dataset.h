// Dataset: the rows of a training file as token ids, each with the part that is trained on.
//
// Read once, whole, by every rank; what a rank needs later is a few bytes per token of memory. A
// row is one JSON object per line in the first of these forms that it has (other keys are ignored):
//
//   messages      [{role, content}, ...]      trained on: what the assistant says
//   instruction   with instances [{input, output}, ...], each a row, or with input and output
//   prompt        with completion
//   text          trained on all of it
//
// Instruction and prompt rows become a user and an assistant turn where the tokenizer has ChatML's
// tokens, else "instruction\ninput\n" followed by the output, or the prompt followed by the
// completion, closed by the end-of-text id.
//
// Immutable after Load; any thread. Errors name the file, the line and what is wrong with it;
// nothing is skipped silently: rows cut to max_seq_len and rows left without a label are counted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/formats/tokenizer.h"

namespace muster {

// The label of a position whose prediction is not trained on.
inline constexpr std::int64_t kIgnoredLabel = -100;

struct DatasetOptions {
  std::int64_t max_seq_len = 2048;
  std::string chat_template = "auto";  // auto | chatml
  // Rows of the model's embedding; a larger id is an error.
  std::int64_t vocab_size = 0;
  // Ends rows that are no chat; none: they just end. ModelConfig::eos_token_ids.front().
  std::optional<std::int32_t> eos_token_id;
};

struct DatasetStats {
  std::int64_t rows = 0;          // kept
  std::int64_t truncated = 0;     // cut to max_seq_len
  std::int64_t dropped = 0;       // nothing to train on left
  std::int64_t tokens = 0;        // of the kept rows
  std::int64_t label_tokens = 0;  // of the kept rows

  friend bool operator==(const DatasetStats&, const DatasetStats&) = default;
};

enum class RowCut { kWhole, kTruncated };

class Dataset {
 public:
  static Result<Dataset> Load(const std::string& path, const Tokenizer& tokenizer,
                              const DatasetOptions& options);

  std::int64_t size() const { return static_cast<std::int64_t>(label_counts_.size()); }
  const DatasetStats& stats() const { return stats_; }

  // The ids of a row; 0 <= row < size().
  std::span<const std::int32_t> Ids(std::int64_t row) const;
  // One per id: 1 where that token is to be predicted. The first is always 0.
  std::span<const std::uint8_t> Trained(std::int64_t row) const;
  // Ones in Trained(row); at least 1.
  std::int64_t LabelCount(std::int64_t row) const {
    return label_counts_[static_cast<std::size_t>(row)];
  }

  // A hash of all rows: equal on two ranks that have read the same.
  std::uint64_t Fingerprint() const;

  // Adds a row. `trained` has one entry per id, 1 where it is trained on; a row without a label is
  // counted as dropped.
  void Add(std::span<const std::int32_t> ids, std::span<const std::uint8_t> trained,
           RowCut cut = RowCut::kWhole);

 private:
  std::vector<std::int32_t> ids_;
  std::vector<std::uint8_t> trained_;
  std::vector<std::int64_t> offsets_ = {0};  // row r is [offsets_[r], offsets_[r + 1])
  std::vector<std::int32_t> label_counts_;
  DatasetStats stats_;
};

}  // namespace muster
