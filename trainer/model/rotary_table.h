// RotaryTable: cosines and sines of the rotary embedding, half-rotation form.
//
// With some scalings (dynamic, LongRoPE) the angle of a position depends on how long its document
// is: of those packed into a row each has its own, and a row's padding counts nothing.
//
// Owned by who trains or infers; grows to the longest document; one thread.
//
// RotaryTables: that of a model's layers, and a second one where layers with a window have angles
// of their own (Gemma 3).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "trainer/core/model_config.h"
#include "trainer/ops/batch_shape.h"

namespace muster {

// What a rotary table is made of. Angles are fp32 whatever the model computes in, as Hugging
// Face's are.
struct RotaryTypes {
  at::ScalarType buffer = at::kFloat;  // cosines and sines are rounded to this type
  at::ScalarType stored = at::kFloat;  // and stored in this one
  at::Device device = at::kCPU;
};

struct RotaryAngles {
  at::Tensor cos;  // [rows, rotary half]
  at::Tensor sin;
  bool by_token = false;  // a row for each token of a batch; else for each position
};

class RotaryTable {
 public:
  explicit RotaryTable(const ModelConfig& config, const RotaryTypes& types = {});

  bool depends_on_length() const;
  // The angles of `count` positions from `begin` on, in a document of `length` tokens.
  RotaryAngles Of(std::int64_t length, std::int64_t begin, std::int64_t count);
  // Those of the tokens of a batch. `row_lengths`: the tokens of each row before its padding, where
  // no documents are named; empty: rows have none.
  RotaryAngles OfBatch(const BatchShape& shape, const std::vector<std::int64_t>& row_lengths);

 private:
  struct Grown {
    std::int64_t length = 0;
    at::Tensor cos, sin;
  };
  // Documents of equal classes have equal angles; 0: those that are not long.
  std::int64_t ClassOf(std::int64_t length) const;
  const Grown& OfClass(std::int64_t document_class, std::int64_t positions);
  at::Tensor Frequencies(std::int64_t document_class) const;

  const ModelConfig config_;
  const RotaryTypes types_;
  std::map<std::int64_t, Grown> tables_;  // by class
};

struct LayerAngles {
  RotaryAngles all;
  RotaryAngles windowed = {};  // of layers with a window; undefined: they have those of all
};

class RotaryTables {
 public:
  explicit RotaryTables(const ModelConfig& config, const RotaryTypes& types = {});

  // As RotaryTable's.
  LayerAngles OfBatch(const BatchShape& shape, const std::vector<std::int64_t>& row_lengths);
  // Null: the layer does not rotate.
  RotaryTable* OfLayer(std::int64_t layer);

 private:
  const ModelConfig config_;
  RotaryTable all_;
  std::optional<RotaryTable> windowed_;
};

}  // namespace muster
