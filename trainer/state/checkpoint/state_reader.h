// StateReader: the saved state of a training as one set of tensors, whatever files it lies in.
//
// Two implementations: ShardedState (a checkpoint of any number of ranks) and FileState (a single
// safetensors file). A tensor is found by its Hugging Face name and a kind: "weight", "exp_avg" or
// "exp_avg_sq". Which arrays and ranks the elements came from is no longer visible.
//
// Belongs to one thread; blocks on the disk. Memory is bounded: headers and a few pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/state/checkpoint/adapter_origin.h"
#include "trainer/state/checkpoint/checkpoint.h"

namespace muster {

struct StateTensor {
  std::vector<std::int64_t> shape;
  ElementType type = ElementType::kFloat32;
  std::string file;  // one that holds a part of it, for messages
};

class StateReader {
 public:
  virtual ~StateReader() = default;

  virtual const std::string& path() const = 0;  // for messages
  virtual const TrainCursor& cursor() const = 0;
  // Nothing: it is no adapter, or one of a version that did not say.
  virtual const std::optional<AdapterOrigin>& adapter() const = 0;
  virtual std::vector<std::string> kinds() const = 0;
  // The names of the tensors of a kind, sorted.
  virtual std::vector<std::string> tensors(std::string_view kind) const = 0;
  // Null when there is none.
  virtual const StateTensor* Find(std::string_view kind, const std::string& tensor) const = 0;

  // out[0 .. count) = elements [begin, begin + count) of the flattened tensor in its own type. The
  // tensor is there and has that many. kDataLoss when they are damaged or in no file.
  virtual Status Read(std::string_view kind, const std::string& tensor, std::int64_t begin,
                      std::int64_t count, void* out) = 0;
};

// `path` is one of those that InitFrom takes (init_from.h).
Result<std::unique_ptr<StateReader>> OpenState(const std::string& path);

struct FillOptions {
  bool moments = true;  // also the arrays of other kinds than "weight"
  // Convert where the element types differ; otherwise that is kFailedPrecondition.
  bool convert = false;
  ArrayMemory memory;             // of the arrays
  std::function<void()> on_read;  // after each piece, of 64 MiB at most; may be empty
};

// Fills every interval of `arrays` from `state`; elements of no interval stay as they are.
// kFailedPrecondition, with tensor and file: the state has no such tensor, or one of another shape
// or type.
Status FillArrays(StateReader& state, const std::vector<ShardArray>& arrays,
                  const FillOptions& options);

}  // namespace muster
