#include "trainer/sharding/step_batch.h"

#include <algorithm>
#include <numeric>

namespace muster {
namespace {

constexpr std::int64_t kLengthMultiple = 32;
// Fewer positions than the head would fill up with anyway.
constexpr std::int64_t kFewUnlabelled = 32;

std::int64_t RoundUp(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

MicroBatch PadToFewLengths(const MicroBatch& batch) {
  MicroBatch padded;
  padded.rows = batch.rows;
  padded.label_count = batch.label_count;
  padded.length = RoundUp(batch.length, kLengthMultiple);
  padded.input_ids.assign(padded.rows * padded.length, 0);
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

}  // namespace muster
