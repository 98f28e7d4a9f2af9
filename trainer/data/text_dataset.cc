#include "trainer/data/text_dataset.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

#include <xxhash.h>

#include "trainer/chat/chat.h"
#include "trainer/data/row_parser.h"

namespace muster {
namespace {

// Turns the samples of a file into rows of a dataset.
class RowEncoder {
 public:
  RowEncoder(const Tokenizer& tokenizer, const TextDatasetOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        chat_template_(ChooseChatTemplate(options.chat_template, options.model_dir, tokenizer)) {}

  Status Encode(const RowSample& sample, std::int64_t line, TextDataset* dataset) {
    ids_.clear();
    trained_.clear();
    MUSTER_RETURN_IF_ERROR(EncodeSample(sample));
    for (const std::int32_t id : ids_)
      if (id >= options_.vocab_size)
        return InvalidArgument("holds token " + std::to_string(id) + " (" +
                               tokenizer_.TokenText(id) + "), but the model's vocab_size is " +
                               std::to_string(options_.vocab_size) +
                               "; the tokenizer does not belong to this model");
    const auto kept = std::min(
        ids_.size(), static_cast<std::size_t>(std::max<std::int64_t>(options_.max_seq_len, 0)));
    dataset->Add(std::span(ids_).first(kept), std::span(trained_).first(kept),
                 kept < ids_.size() ? RowCut::kTruncated : RowCut::kWhole, line);
    return OkStatus();
  }

 private:
  Status EncodeSample(const RowSample& sample) {
    const bool has_template = chat_template_.status().code() != StatusCode::kNotFound;
    if (sample.kind == RowSample::Kind::kChat)
      return EncodeTurns({.messages = sample.messages, .tools = sample.tools});
    if (sample.kind == RowSample::Kind::kAnswer && has_template)
      return EncodeTurns({.messages = {{"user", sample.user}, {"assistant", sample.answer}}});
    Append(tokenizer_.Prefix(), false);
    if (sample.kind == RowSample::Kind::kAnswer) {
      Append(tokenizer_.Encode(sample.prompt), false);
      Append(tokenizer_.Encode(sample.answer, {.continues_text = EndsInText()}), true);
    } else {
      Append(tokenizer_.Encode(sample.text), true);
    }
    AppendEnd();
    return OkStatus();
  }

  // Whether what comes next goes on from text.
  bool EndsInText() const { return !ids_.empty() && !tokenizer_.IsAddedToken(ids_.back()); }

  Status EncodeTurns(const Conversation& conversation) {
    if (!chat_template_.ok()) return chat_template_.status();
    MUSTER_ASSIGN_OR_RETURN(EncodedChat chat,
                            EncodeChat(*chat_template_, conversation, tokenizer_));
    ids_ = std::move(chat.ids);
    trained_ = std::move(chat.trained);
    return OkStatus();
  }

  // The end-of-text id, once: the tokenizer's own template may have put it there already.
  void AppendEnd() {
    if (!tokenizer_.Suffix().empty())
      Append(tokenizer_.Suffix(), true);
    else if (options_.eos_token_id)
      Append({*options_.eos_token_id}, true);
  }

  void Append(const std::vector<std::int32_t>& ids, bool trained) {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    trained_.insert(trained_.end(), ids.size(), trained ? 1 : 0);
  }

  const Tokenizer& tokenizer_;
  const TextDatasetOptions& options_;
  const Result<ChatTemplate> chat_template_;
  std::vector<std::int32_t> ids_;
  std::vector<std::uint8_t> trained_;
};

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

Status CheckFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return NotFound("there is no training file " + path + "; name one in train.data.train");
  if (std::filesystem::is_directory(path, error))
    return InvalidArgument(path + " is a directory, not a .jsonl file");
  return OkStatus();
}

}  // namespace

Result<TextDataset> TextDataset::Load(const std::string& path, const Tokenizer& tokenizer,
                                      const TextDatasetOptions& options) {
  MUSTER_RETURN_IF_ERROR(CheckFile(path));
  std::ifstream file(path, std::ios::binary);
  if (!file) return ErrnoStatus(errno, "open " + path);
  TextDataset dataset;
  dataset.path_ = path;
  RowEncoder encoder(tokenizer, options);
  std::int64_t line_number = 0;
  for (std::string line; std::getline(file, line);) {
    ++line_number;
    std::string_view text = line;
    if (line_number == 1 && text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    if (IsBlank(text)) continue;
    const std::string where = path + ":" + std::to_string(line_number);
    auto samples = ParseRow(text);
    if (!samples.ok()) return samples.status().WithContext(where);
    for (const RowSample& sample : *samples)
      if (Status status = encoder.Encode(sample, line_number, &dataset); !status.ok())
        return status.WithContext(where);
    if (options.on_rows && line_number % TextDatasetOptions::kRowsPerCall == 0) options.on_rows();
  }
  if (file.bad()) return ErrnoStatus(errno, "read " + path);
  if (dataset.size() > 0) return dataset;
  if (dataset.stats_.dropped == 0) return InvalidArgument(path + " has no rows");
  return InvalidArgument("none of the " + std::to_string(dataset.stats_.dropped) + " rows of " +
                         path + " has a token to train on within max_seq_len " +
                         std::to_string(options.max_seq_len));
}

std::int64_t TextDataset::Length(std::int64_t row) const {
  return offsets_[static_cast<std::size_t>(row) + 1] - offsets_[static_cast<std::size_t>(row)];
}

Status TextDataset::Read(std::int64_t row, std::span<std::int64_t> ids,
                         std::span<std::int64_t> labels) const {
  const auto from = Ids(row);
  const auto trained = Trained(row);
  std::copy(from.begin(), from.end(), ids.begin());
  std::fill(labels.begin(), labels.end(), kIgnoredLabel);
  for (std::size_t t = 1; t < from.size(); ++t)
    if (trained[t] != 0) labels[t - 1] = from[t];
  return OkStatus();
}

std::span<const std::int32_t> TextDataset::Ids(std::int64_t row) const {
  const auto begin = static_cast<std::size_t>(offsets_[static_cast<std::size_t>(row)]);
  const auto end = static_cast<std::size_t>(offsets_[static_cast<std::size_t>(row) + 1]);
  return std::span(ids_).subspan(begin, end - begin);
}

std::span<const std::uint8_t> TextDataset::Trained(std::int64_t row) const {
  const auto begin = static_cast<std::size_t>(offsets_[static_cast<std::size_t>(row)]);
  const auto end = static_cast<std::size_t>(offsets_[static_cast<std::size_t>(row) + 1]);
  return std::span(trained_).subspan(begin, end - begin);
}

std::string TextDataset::Describe(std::span<const std::int64_t> rows) const {
  std::vector<std::int64_t> lines;
  for (const std::int64_t row : rows) lines.push_back(lines_[static_cast<std::size_t>(row)]);
  return DescribePlaces("line", std::move(lines), path_);
}

std::uint64_t TextDataset::Fingerprint() const {
  const std::uint64_t parts[] = {
      XXH3_64bits(ids_.data(), ids_.size() * sizeof(std::int32_t)),
      XXH3_64bits(trained_.data(), trained_.size()),
      XXH3_64bits(offsets_.data(), offsets_.size() * sizeof(std::int64_t)),
  };
  return XXH3_64bits(parts, sizeof parts);
}

void TextDataset::Add(std::span<const std::int32_t> ids, std::span<const std::uint8_t> trained,
                      RowCut cut, std::int64_t line) {
  MUSTER_CHECK(ids.size() == trained.size(), "one mark per id");
  if (cut == RowCut::kTruncated) ++stats_.truncated;
  // Nothing precedes the first token, so nothing predicts it.
  const auto labels = std::count(trained.begin() + (trained.empty() ? 0 : 1), trained.end(), 1);
  if (labels == 0) {
    ++stats_.dropped;
    return;
  }
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  trained_.push_back(0);
  trained_.insert(trained_.end(), trained.begin() + 1, trained.end());
  offsets_.push_back(static_cast<std::int64_t>(ids_.size()));
  label_counts_.push_back(static_cast<std::int32_t>(labels));
  lines_.push_back(line);
  ++stats_.rows;
  stats_.tokens += static_cast<std::int64_t>(ids.size());
  stats_.label_tokens += labels;
}

}  // namespace muster
