// What sinks change of attention (trainer/ops/attention.h), once it has run without them.
//
// `bounds` are the batch's documents (DocumentBounds), in whose order the logarithms lie. Heads are
// independent, and one thread has all of a head's tokens, so that bits do not depend on the number
// of threads. The trainer's thread; no Torch.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/ops/attention.h"

namespace muster {

// Counts the sinks in the sums of exponentials, and so in the output.
void CountSinks(const op::Attention& a, const std::vector<std::int64_t>& bounds);

void WriteSinkGradients(const op::AttentionBackward& a, const std::vector<std::int64_t>& bounds);

}  // namespace muster
