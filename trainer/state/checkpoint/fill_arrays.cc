#include <algorithm>

#include "trainer/core/flat_layout.h"
#include "trainer/state/checkpoint/element_convert.h"
#include "trainer/state/checkpoint/shard_header.h"
#include "trainer/state/checkpoint/state_reader.h"

namespace muster {
namespace {

constexpr std::int64_t kPieceElements = 1 << 18;
// Of reads straight into the arrays: few enough that the pieces at their ends, which are read
// twice, do not matter, and often enough to show that a slow disk moves.
constexpr std::int64_t kDirectElements = 1 << 23;

std::string Named(std::string_view kind, const std::string& tensor) {
  return kind == kWeightKind ? "tensor " + tensor : std::string(kind) + " of tensor " + tensor;
}

Status CheckFits(const StateReader& state, const ShardArray& array, const TensorInterval& wanted,
                 const StateTensor* found, bool convert) {
  const std::string named = Named(array.kind(), wanted.tensor);
  if (found == nullptr) {
    const bool other_model = state.Find(kWeightKind, wanted.tensor) == nullptr;
    return FailedPrecondition(state.path() + " holds no " + named +
                              (other_model ? ": it does not fit this job's model"
                                           : ": it was saved without optimizer state"));
  }
  if (found->shape != wanted.shape) {
    return FailedPrecondition(found->file + " does not fit this job's model: " + named + " is " +
                              ShapeText(found->shape) + " there and " + ShapeText(wanted.shape) +
                              " here");
  }
  if (found->type == array.type || (convert && CanConvert(found->type, array.type))) {
    return OkStatus();
  }
  const std::string types = found->file + " holds " + named + " as " +
                            std::string(StoredTypeName(found->type)) + ", this job keeps it as " +
                            std::string(StoredTypeName(array.type));
  return FailedPrecondition(
      convert ? types
              : types +
                    ": a resume changes no types. Set train.optimizer.master_weights and "
                    "train.optimizer.moments as they were, or begin a new job with "
                    "train.init_from, which converts");
}

// By way of host memory: where the types differ, or the array lies elsewhere.
Status FillInPieces(StateReader& state, const ShardArray& array, const TensorInterval& interval,
                    const StateTensor& source, const FillOptions& options) {
  const auto piece = static_cast<std::size_t>(std::min(kPieceElements, interval.count));
  std::vector<char> stored(piece * ElementSize(source.type));
  for (std::int64_t at = 0; at < interval.count; at += kPieceElements) {
    const std::int64_t count = std::min(kPieceElements, interval.count - at);
    MUSTER_RETURN_IF_ERROR(
        state.Read(array.kind(), interval.tensor, interval.begin + at, count, stored.data()));
    PutElements(stored.data(), source.type, count, array, interval.array_offset + at,
                options.memory);
    if (options.on_read) options.on_read();
  }
  return OkStatus();
}

Status FillDirectly(StateReader& state, const ShardArray& array, const TensorInterval& interval,
                    const FillOptions& options) {
  const std::size_t size = ElementSize(array.type);
  auto* out = static_cast<char*>(array.data) + interval.array_offset * size;
  for (std::int64_t at = 0; at < interval.count; at += kDirectElements) {
    const std::int64_t count = std::min(kDirectElements, interval.count - at);
    MUSTER_RETURN_IF_ERROR(
        state.Read(array.kind(), interval.tensor, interval.begin + at, count, out + at * size));
    if (options.on_read) options.on_read();
  }
  return OkStatus();
}

Status FillInterval(StateReader& state, const ShardArray& array, const TensorInterval& interval,
                    const FillOptions& options) {
  const StateTensor* found = state.Find(array.kind(), interval.tensor);
  MUSTER_RETURN_IF_ERROR(CheckFits(state, array, interval, found, options.convert));
  if (found->type != array.type || options.memory.write) {
    return FillInPieces(state, array, interval, *found, options);
  }
  return FillDirectly(state, array, interval, options);
}

}  // namespace

Status FillArrays(StateReader& state, const std::vector<ShardArray>& arrays,
                  const FillOptions& options) {
  for (const ShardArray& array : arrays) {
    if (!options.moments && array.kind() != kWeightKind) continue;
    for (const TensorInterval& interval : array.intervals) {
      MUSTER_RETURN_IF_ERROR(FillInterval(state, array, interval, options));
    }
  }
  return OkStatus();
}

}  // namespace muster
