// What the engine makes of a micro-batch before it computes: few distinct shapes, and the positions
// that reach the head.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/round_up.h"
#include "trainer/data/batch_loader.h"

namespace muster {

// Rows padded on the right to a multiple of 32. Matrix libraries compile and keep a kernel for
// every shape that they meet; a few lengths serve as well as hundreds.
inline std::int64_t PaddedLength(std::int64_t length) { return RoundUp(length, 32); }
MicroBatch PadToFewLengths(const MicroBatch& batch);

// The positions with a label, ascending; all positions where only a few have none, since taking
// rows out of an array would copy it.
struct LabelledPositions {
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> labels;  // kIgnoredLabel where there is none
};
LabelledPositions FindLabels(const MicroBatch& batch);

// Texts, none of them empty, as the rows of a padded batch without labels, and their last
// positions, each with a label that says nothing.
struct TextBatch {
  MicroBatch batch;
  LabelledPositions last;
};
TextBatch BatchOfTexts(const std::vector<std::vector<std::int32_t>>& texts);

}  // namespace muster
