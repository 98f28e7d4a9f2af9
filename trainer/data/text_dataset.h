// TextDataset: the rows of a .jsonl file, tokenized.
//
// Read once, whole, by every rank; what a rank needs later is a few bytes per token of memory. A
// row is one JSON object per line in the first of these forms that it has (other keys are ignored):
//
//   messages      [{role, content}, ...]      trained on: what the assistant says; with tools
//   instruction   with instances [{input, output}, ...], each a row, or with input and output
//   prompt        with completion
//   text          trained on all of it
//
// Instruction and prompt rows become a user and an assistant turn where there is a chat template
// (ChooseChatTemplate), else "instruction\ninput\n" followed by the output, or the prompt followed
// by the completion, closed by the end-of-text id.
//
// Immutable after Load; any thread. Errors name the file, the line and what is wrong with it;
// nothing is skipped silently: rows cut to max_seq_len and rows left without a label are counted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/dataset.h"
#include "trainer/tokenizer/tokenizer.h"

namespace muster {

struct TextDatasetOptions {
  std::int64_t max_seq_len = 2048;
  std::string chat_template = "auto";  // as ChooseChatTemplate takes it
  std::string model_dir = {};          // where auto finds the model's own; empty: nowhere
  // Rows of the model's embedding; a larger id is an error.
  std::int64_t vocab_size = 0;
  // Ends rows that are no chat; none: they just end. ModelConfig::eos_token_ids.front().
  std::optional<std::int32_t> eos_token_id;
  std::function<void()> on_rows;  // after every kRowsPerCall lines; empty: nobody asks
  static constexpr std::int64_t kRowsPerCall = 256;
};

enum class RowCut { kWhole, kTruncated };

class TextDataset : public Dataset {
 public:
  static Result<TextDataset> Load(const std::string& path, const Tokenizer& tokenizer,
                                  const TextDatasetOptions& options);

  std::int64_t size() const override { return static_cast<std::int64_t>(label_counts_.size()); }
  const DatasetStats& stats() const override { return stats_; }
  std::int64_t Length(std::int64_t row) const override;
  std::int64_t LabelCount(std::int64_t row) const override {
    return label_counts_[static_cast<std::size_t>(row)];
  }
  // Never fails: all ids were checked by Load.
  Status Read(std::int64_t row, std::span<std::int64_t> ids,
              std::span<std::int64_t> labels) const override;
  std::string Describe(std::span<const std::int64_t> rows) const override;
  // A hash of all rows.
  std::uint64_t Fingerprint() const override;

  std::span<const std::int32_t> Ids(std::int64_t row) const;
  // One per id: 1 where that token is to be predicted. The first is always 0.
  std::span<const std::uint8_t> Trained(std::int64_t row) const;

  // Adds a row. `trained` has one entry per id, 1 where it is trained on; a row without a label is
  // counted as dropped. `line` of the file, from 1.
  void Add(std::span<const std::int32_t> ids, std::span<const std::uint8_t> trained,
           RowCut cut = RowCut::kWhole, std::int64_t line = 0);

 private:
  std::vector<std::int32_t> ids_;
  std::vector<std::uint8_t> trained_;
  std::vector<std::int64_t> offsets_ = {0};  // row r is [offsets_[r], offsets_[r + 1])
  std::vector<std::int32_t> label_counts_;
  std::vector<std::int64_t> lines_;  // by row
  std::string path_;
  DatasetStats stats_;
};

}  // namespace muster
