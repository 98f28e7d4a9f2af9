// The shape of low-rank adapters on the matrices of a block.
//
// An adapter adds scale * x A^T B^T to the part of a matrix's output that belongs to its module.
// The adapters of a matrix that is several modules in one (query, key and value; gate and up) lie
// behind one another: their A are one matrix [s * rank, in], their B one [rows of the parts, rank].
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/ops/dropout.h"

namespace muster {

// The rows of a matrix that an adapter adds to.
struct LoraSegment {
  std::int64_t begin = 0;
  std::int64_t rows = 0;
};

// The adapters of one matrix, in the order of its rows.
struct LoraForm {
  std::int64_t rank = 0;
  double scale = 1;
  double dropout = 0;  // how likely an element of x counts nothing for the adapters, in training
  std::vector<LoraSegment> segments;

  std::int64_t hidden_width() const { return rank * static_cast<std::int64_t>(segments.size()); }
};

// The adapters of one matrix on one micro-batch. `form` outlives it.
struct LoraPass {
  const LoraForm& form;
  std::optional<DropoutKey> mask =
      {};  // of x [N, in], one for all segments; nothing: all of x counts

  bool empty() const { return form.segments.empty(); }
  bool drops() const { return mask.has_value() && form.dropout > 0; }
};

struct BlockLora {
  LoraForm qkv, output;
  LoraForm gate_up, down;                             // in dense blocks
  LoraForm shared_gate_up, shared_down, shared_gate;  // of the expert that all tokens have
  LoraForm expert_gate_up, expert_down;  // on the matrix of each expert (expert_adapters.h)
};

}  // namespace muster
