// PackedMatrix: a frozen matrix in NF4, one part for each module that it joins.
//
// Points into memory that its owner keeps (FrozenWeights); what reads it dequantises the whole
// matrix first. Plain values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/ops/nf4.h"

namespace muster {

struct PackedMatrix {
  struct Part {
    std::int64_t rows = 0;
    Nf4Source source;
  };
  std::int64_t columns = 0;
  std::vector<Part> parts;  // one below the other

  std::int64_t rows() const {
    std::int64_t all = 0;
    for (const Part& part : parts) all += part.rows;
    return all;
  }
};

}  // namespace muster
