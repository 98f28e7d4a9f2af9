#include "trainer/ops/documents.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace muster {

std::vector<std::int64_t> DocumentBounds(const BatchShape& shape) {
  std::vector<std::int64_t> bounds = shape.document_begins;
  if (bounds.empty()) {
    for (std::int64_t row = 0; row < shape.rows; ++row) bounds.push_back(row * shape.length);
  }
  bounds.push_back(shape.tokens());
  return bounds;
}

std::int64_t LongestDocument(const std::vector<std::int64_t>& bounds) {
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < bounds.size(); ++i) {
    longest = std::max(longest, bounds[i] - bounds[i - 1]);
  }
  return longest;
}

std::vector<std::int32_t> TokenPositions(const BatchShape& shape) {
  const std::vector<std::int64_t> bounds = DocumentBounds(shape);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(shape.tokens()));
  for (std::size_t i = 1; i < bounds.size(); ++i) {
    std::iota(positions.begin() + bounds[i - 1], positions.begin() + bounds[i], 0);
  }
  return positions;
}

}  // namespace muster
