// The documents of a batch, in the forms in which operators take them.
//
// Pure; any thread. The shape is one that ArrayChecks::Documents lets pass.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/ops/batch_shape.h"

namespace muster {

// First tokens of the documents, and the number of tokens; rows where no documents are named.
std::vector<std::int64_t> DocumentBounds(const BatchShape& shape);
// The longest of the documents between neighbouring bounds.
std::int64_t LongestDocument(const std::vector<std::int64_t>& bounds);
// The place of every token within its document.
std::vector<std::int32_t> TokenPositions(const BatchShape& shape);

}  // namespace muster
