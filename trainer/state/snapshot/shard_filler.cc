#include "trainer/state/snapshot/shard_filler.h"

#include "trainer/core/flat_layout.h"
#include "trainer/core/stream_copy.h"
#include "trainer/state/checkpoint/shard_header.h"

namespace muster {
namespace {

Status CheckFits(const ShardArray& source, const TensorInterval& from, const ShardArray& array,
                 const TensorInterval& to) {
  if (from.shape == to.shape && source.type == array.type) return OkStatus();
  const auto text = [](const ShardArray& of, const TensorInterval& interval) {
    return std::string(StoredTypeName(of.type)) + " " + ShapeText(interval.shape);
  };
  return FailedPrecondition("the snapshot does not fit this job: " + std::string(source.kind()) +
                            " of tensor " + from.tensor + " is " + text(source, from) +
                            " there and " + text(array, to) + " here");
}

}  // namespace

ShardFiller::ShardFiller(const std::vector<ShardArray>& arrays, ArrayMemory memory)
    : memory_(std::move(memory)) {
  for (const ShardArray& array : arrays) {
    for (const TensorInterval& interval : array.intervals) {
      targets_[{std::string(array.kind()), interval.tensor}].push_back({&array, &interval});
      missing_ += interval.count;
    }
  }
}

Status ShardFiller::ForOverlaps(
    const ShardArray& source, std::int64_t first, std::int64_t count,
    const std::function<Status(const TensorInterval&, const Overlap&)>& take) const {
  for (const TensorInterval& from : source.intervals) {
    // From elements of the array to those of the tensor.
    const std::int64_t shift = from.begin - from.array_offset;
    const Interval piece = Intersect({first + shift, first + count + shift}, from.elements());
    if (piece.empty()) continue;
    const auto found = targets_.find({std::string(source.kind()), from.tensor});
    if (found == targets_.end()) continue;
    for (const Target& target : found->second) {
      const TensorInterval& to = *target.interval;
      const Interval part = Intersect(piece, to.elements());
      if (part.empty()) continue;
      MUSTER_RETURN_IF_ERROR(take(from, {.target = &target,
                                         .in_source = part.begin - shift,
                                         .in_array = to.array_offset + part.begin - to.begin,
                                         .count = part.count()}));
    }
  }
  return OkStatus();
}

Status ShardFiller::Take(const ShardArray& source, std::int64_t first, std::int64_t count,
                         const void* data) {
  const auto take = [&](const TensorInterval& from, const Overlap& overlap) -> Status {
    const ShardArray& array = *overlap.target->array;
    MUSTER_RETURN_IF_ERROR(CheckFits(source, from, array, *overlap.target->interval));
    const std::size_t size = ElementSize(array.type);
    const std::size_t bytes = static_cast<std::size_t>(overlap.count) * size;
    const char* piece =
        static_cast<const char*>(data) + static_cast<std::size_t>(overlap.in_source - first) * size;
    char* place =
        static_cast<char*>(array.data) + static_cast<std::size_t>(overlap.in_array) * size;
    if (memory_.write) {
      memory_.write(place, piece, bytes);
    } else {
      StreamCopy(place, piece, bytes);
    }
    missing_ -= overlap.count;
    bytes_taken_ += static_cast<std::int64_t>(bytes);
    return OkStatus();
  };
  return ForOverlaps(source, first, count, take);
}

bool ShardFiller::Wants(const ShardArray& source) const {
  bool wanted = false;
  // Nothing here fails.
  (void)ForOverlaps(source, 0, source.count, [&](const TensorInterval&, const Overlap&) {
    wanted = true;
    return OkStatus();
  });
  return wanted;
}

}  // namespace muster
