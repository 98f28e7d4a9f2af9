// ShardFiller: fills a rank's arrays from pieces of other shards, in whatever order they come, by
// intersecting intervals.
//
// Names neither files nor ranks: what it is given, it keeps as far as an array wants it. Refuses a
// state that does not fit: another shape, another element type. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "trainer/state/checkpoint/checkpoint.h"

namespace muster {

class ShardFiller {
 public:
  // `arrays` outlive the filler.
  ShardFiller(const std::vector<ShardArray>& arrays, ArrayMemory memory);

  // Elements [first, first + count) of `source` lie at `data`, in its type. An element that was
  // taken before is taken again and counted once more: no two sources hold the same one.
  Status Take(const ShardArray& source, std::int64_t first, std::int64_t count, const void* data);
  // Whether something of `source` has a place here.
  bool Wants(const ShardArray& source) const;
  // Whether every interval has been filled.
  bool complete() const { return missing_ == 0; }
  std::int64_t bytes_taken() const { return bytes_taken_; }

 private:
  struct Target {
    const ShardArray* array = nullptr;
    const TensorInterval* interval = nullptr;
  };
  // A run of elements that source and target have in common.
  struct Overlap {
    const Target* target = nullptr;
    std::int64_t in_source = 0;  // first element within the source's array
    std::int64_t in_array = 0;
    std::int64_t count = 0;
  };
  // Calls `take` for what elements [first, first + count) of `source` have in common with targets.
  Status ForOverlaps(
      const ShardArray& source, std::int64_t first, std::int64_t count,
      const std::function<Status(const TensorInterval&, const Overlap&)>& take) const;

  const ArrayMemory memory_;
  // By kind and tensor.
  std::map<std::pair<std::string, std::string>, std::vector<Target>> targets_;
  std::int64_t missing_ = 0;  // elements
  std::int64_t bytes_taken_ = 0;
};

}  // namespace muster
