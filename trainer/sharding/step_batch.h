// What the engine makes of a micro-batch before it computes: few distinct shapes, and the positions
// that reach the head.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/batch_loader.h"

namespace muster {

// Rows padded on the right to a multiple of 32. Matrix libraries compile and keep a kernel for every
// shape that they meet; a few lengths serve as well as hundreds.
MicroBatch PadToFewLengths(const MicroBatch& batch);

// The positions with a label, filled up to a multiple of 64, for the same reason, with copies of
// the first position that have none; all positions where nearly all have one.
struct LabelledPositions {
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> labels;  // kIgnoredLabel where there is none
};
LabelledPositions FindLabels(const MicroBatch& batch);

}  // namespace muster
