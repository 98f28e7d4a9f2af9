// ShardArray: a flat array of a rank, and the intervals of the model's tensors that lie in it.
//
// The training state is held, saved and exchanged as such arrays. Any world size finds its elements
// in them by intersecting intervals.
//
// Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/core/element_type.h"
#include "trainer/core/interval.h"

namespace muster {

// A run of elements of a (flattened) tensor and where it lies in the array beside it.
struct TensorInterval {
  std::string tensor;               // Hugging Face name
  std::vector<std::int64_t> shape;  // of the whole tensor
  std::int64_t begin = 0;           // first element within the flattened tensor
  std::int64_t count = 0;
  std::int64_t array_offset = 0;  // first element within the array

  Interval elements() const { return {begin, begin + count}; }

  friend bool operator==(const TensorInterval&, const TensorInterval&) = default;
};

// One flat array of a rank. Not owned: points into the engine's or a shard image's memory.
struct ShardArray {
  // "<unit>/weight", "<unit>/exp_avg", "<unit>/exp_avg_sq". What lies behind the last slash is the
  // kind of its elements; the unit is for people, loading never looks at it.
  std::string name;
  ElementType type = ElementType::kFloat32;
  std::int64_t count = 0;
  void* data = nullptr;
  std::vector<TensorInterval> intervals;  // padding elements belong to none

  std::string_view kind() const {
    return std::string_view(name).substr(name.rfind('/') + 1);  // npos + 1 is 0
  }
  std::size_t bytes() const { return static_cast<std::size_t>(count) * ElementSize(type); }
};
inline constexpr std::string_view kWeightKind = "weight";

// How arrays are reached that do not lie in host memory. A copy has ended when the function
// returns. Empty functions: the arrays are host memory.
struct ArrayMemory {
  std::function<void(void* host, const void* array, std::size_t bytes)> read;
  std::function<void(void* array, const void* host, std::size_t bytes)> write;
};

}  // namespace muster
