#include "trainer/fsdp/step_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace muster {
namespace {

// Fewer positions than the head would fill up with anyway.
constexpr std::int64_t kFewUnlabelled = 32;

// Where documents begin once rows are `to` long instead of `from`: what is added to a row is one
// more.
std::vector<std::int64_t> MoveBegins(const std::vector<std::int64_t>& begins, std::int64_t rows,
                                     std::int64_t from, std::int64_t to) {
  std::vector<std::int64_t> moved;
  std::size_t next = 0;
  for (std::int64_t row = 0; row < rows && !begins.empty(); ++row) {
    for (; next < begins.size() && begins[next] < (row + 1) * from; ++next)
      moved.push_back(begins[next] - row * from + row * to);
    if (from < to) moved.push_back(row * to + from);
  }
  return moved;
}

}  // namespace

MicroBatch PadToFewLengths(const MicroBatch& batch) {
  MicroBatch padded;
  padded.number = batch.number;
  padded.rows = batch.rows;
  padded.label_count = batch.label_count;
  padded.length = PaddedLength(batch.length);
  padded.row_lengths = batch.row_lengths;
  if (padded.row_lengths.empty()) {
    padded.row_lengths.assign(static_cast<std::size_t>(batch.rows), batch.length);
  }
  padded.input_ids.assign(padded.rows * padded.length, 0);
  padded.document_begins =
      MoveBegins(batch.document_begins, batch.rows, batch.length, padded.length);
  padded.labels.assign(padded.rows * padded.length, kIgnoredLabel);
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const std::int64_t from = row * batch.length, to = row * padded.length;
    std::copy_n(batch.input_ids.begin() + from, batch.length, padded.input_ids.begin() + to);
    std::copy_n(batch.labels.begin() + from, batch.length, padded.labels.begin() + to);
  }
  return padded;
}

LabelledPositions FindLabels(const MicroBatch& batch) {
  LabelledPositions found;
  if (batch.label_count + kFewUnlabelled >= batch.rows * batch.length) {
    found.positions.resize(batch.labels.size());
    std::iota(found.positions.begin(), found.positions.end(), 0);
    found.labels = batch.labels;
    return found;
  }
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    if (batch.labels[i] == kIgnoredLabel) continue;
    found.positions.push_back(static_cast<std::int64_t>(i));
    found.labels.push_back(batch.labels[i]);
  }
  return found;
}

TextBatch BatchOfTexts(const std::vector<std::vector<std::int32_t>>& texts) {
  MicroBatch batch;
  batch.rows = static_cast<std::int64_t>(texts.size());
  for (const auto& text : texts) {
    batch.length = std::max(batch.length, static_cast<std::int64_t>(text.size()));
  }
  batch.length = PaddedLength(batch.length);
  batch.input_ids.assign(batch.rows * batch.length, 0);
  batch.labels.assign(batch.rows * batch.length, kIgnoredLabel);
  LabelledPositions last;
  for (std::size_t row = 0; row < texts.size(); ++row) {
    const std::int64_t begin = static_cast<std::int64_t>(row) * batch.length;
    std::copy(texts[row].begin(), texts[row].end(), batch.input_ids.begin() + begin);
    last.positions.push_back(begin + static_cast<std::int64_t>(texts[row].size()) - 1);
    last.labels.push_back(0);
    batch.row_lengths.push_back(static_cast<std::int64_t>(texts[row].size()));
  }
  return {std::move(batch), std::move(last)};
}

}  // namespace muster
