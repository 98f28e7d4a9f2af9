#include "trainer/data/text_dataset.h"

#include <algorithm>

#include "common/base/check.h"

namespace muster {

Result<TextDataset> TextDataset::Load(const std::vector<std::string>& paths,
                                      const Tokenizer& tokenizer, const TextOptions& options,
                                      const EncodeRun& run) {
  TextDataset dataset;
  dataset.paths_ = paths;
  MUSTER_RETURN_IF_ERROR(EncodeFiles(paths, tokenizer, options, run, [&](const EncodedRows& rows) {
    dataset.Add(rows);
    return OkStatus();
  }));
  if (dataset.size() == 0) return NoRowsLeft(paths, dataset.stats_, options.max_seq_len);
  return dataset;
}

Status NoRowsLeft(const std::vector<std::string>& paths, const DatasetStats& stats,
                  std::int64_t max_seq_len) {
  const std::string where =
      paths.front() +
      (paths.size() == 1 ? "" : " and " + std::to_string(paths.size() - 1) + " further files");
  if (stats.dropped == 0)
    return InvalidArgument(where + (paths.size() == 1 ? " has" : " have") + " no rows");
  return InvalidArgument("none of the " + std::to_string(stats.dropped) + " rows of " + where +
                         " has a token to train on within max_seq_len " +
                         std::to_string(max_seq_len));
}

void TextDataset::Add(const EncodedRows& rows) {
  const auto append = [](const auto& from, auto* to) {
    to->insert(to->end(), from.begin(), from.end());
  };
  append(rows.words, &rows_.words);
  append(rows.labels, &rows_.labels);
  append(rows.places, &rows_.places);
  for (const std::uint32_t length : rows.lengths) {
    offsets_.push_back(offsets_.back() + length);
    fingerprint_.Add(Words(static_cast<std::int64_t>(offsets_.size()) - 2));
  }
  AddStats(rows.stats, &stats_);
}

void TextDataset::Add(std::span<const std::int32_t> ids, std::span<const std::uint8_t> trained,
                      std::int64_t line) {
  MUSTER_CHECK(ids.size() == trained.size(), "one mark per id");
  std::vector<std::uint32_t> words;
  for (std::size_t t = 0; t < ids.size(); ++t)
    words.push_back(static_cast<std::uint32_t>(ids[t]) | (trained[t] != 0 ? kTrainedBit : 0));
  EncodedRows row;
  row.Add(words, {0, line});
  Add(row);
}

std::int64_t TextDataset::Length(std::int64_t row) const {
  return offsets_[static_cast<std::size_t>(row) + 1] - offsets_[static_cast<std::size_t>(row)];
}

std::span<const std::uint32_t> TextDataset::Words(std::int64_t row) const {
  return std::span(rows_.words)
      .subspan(static_cast<std::size_t>(offsets_[static_cast<std::size_t>(row)]),
               static_cast<std::size_t>(Length(row)));
}

Status TextDataset::Read(std::int64_t row, std::span<std::int64_t> ids,
                         std::span<std::int64_t> labels) const {
  UnpackRow(Words(row), ids, labels);
  return OkStatus();
}

std::vector<std::int32_t> TextDataset::Ids(std::int64_t row) const {
  std::vector<std::int32_t> ids;
  for (const std::uint32_t word : Words(row))
    ids.push_back(static_cast<std::int32_t>(word & ~kTrainedBit));
  return ids;
}

std::vector<std::uint8_t> TextDataset::Trained(std::int64_t row) const {
  std::vector<std::uint8_t> trained;
  for (const std::uint32_t word : Words(row)) trained.push_back((word & kTrainedBit) != 0 ? 1 : 0);
  return trained;
}

std::string TextDataset::Describe(std::span<const std::int64_t> rows) const {
  std::vector<RowPlace> places;
  for (const std::int64_t row : rows)
    places.push_back(RowPlace::Unpack(rows_.places[static_cast<std::size_t>(row)]));
  return DescribeRowPlaces(places, paths_);
}

}  // namespace muster
