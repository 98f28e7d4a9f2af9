#include "trainer/data/encoded_rows.h"

#include <algorithm>
#include <map>

#include <xxhash.h>

namespace muster {
namespace {

constexpr int kLineBits = 48;

}  // namespace

std::uint64_t RowPlace::Pack() const {
  return static_cast<std::uint64_t>(file) << kLineBits | static_cast<std::uint64_t>(line);
}

RowPlace RowPlace::Unpack(std::uint64_t packed) {
  constexpr std::uint64_t kLineMask = (std::uint64_t{1} << kLineBits) - 1;
  return {static_cast<int>(packed >> kLineBits), static_cast<std::int64_t>(packed & kLineMask)};
}

void EncodedRows::Add(std::span<const std::uint32_t> row, RowPlace place) {
  const auto count =
      row.empty() ? 0 : std::count_if(row.begin() + 1, row.end(), [](std::uint32_t word) {
        return (word & kTrainedBit) != 0;
      });
  if (count == 0) {
    ++stats.dropped;
    return;
  }
  words.push_back(row.front() & ~kTrainedBit);
  words.insert(words.end(), row.begin() + 1, row.end());
  lengths.push_back(static_cast<std::uint32_t>(row.size()));
  labels.push_back(static_cast<std::uint32_t>(count));
  places.push_back(place.Pack());
  ++stats.rows;
  stats.tokens += static_cast<std::int64_t>(row.size());
  stats.label_tokens += count;
}

void UnpackRow(std::span<const std::uint32_t> words, std::span<std::int64_t> ids,
               std::span<std::int64_t> labels) {
  for (std::size_t t = 0; t < words.size(); ++t) ids[t] = words[t] & ~kTrainedBit;
  for (std::size_t t = 0; t + 1 < words.size(); ++t)
    labels[t] = (words[t + 1] & kTrainedBit) != 0 ? ids[t + 1] : kIgnoredLabel;
  if (!labels.empty()) labels.back() = kIgnoredLabel;
}

void RowsFingerprint::Add(std::span<const std::uint32_t> row) {
  const std::uint64_t link[] = {value_, XXH3_64bits(row.data(), row.size_bytes())};
  value_ = XXH3_64bits(link, sizeof link);
}

std::string DescribeRowPlaces(std::span<const RowPlace> places,
                              const std::vector<std::string>& paths) {
  std::map<int, std::vector<std::int64_t>> lines;
  for (const RowPlace& place : places) lines[place.file].push_back(place.line);
  std::string text;
  for (auto& [file, numbers] : lines) {
    const auto index = static_cast<std::size_t>(file);
    text += (text.empty() ? "" : ", ") +
            DescribePlaces("line", std::move(numbers), index < paths.size() ? paths[index] : "");
  }
  return text;
}

}  // namespace muster
