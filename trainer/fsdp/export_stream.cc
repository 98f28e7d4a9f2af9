#include "trainer/fsdp/export_stream.h"

#include <ATen/ATen.h>

#include <cstring>
#include <vector>

#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

constexpr std::int64_t kPieceElements = 1 << 20;

// What a rank has of the stream.
struct Streamer {
  const ShardState& state;
  Communicator* group;  // null: this rank has all
  const TensorSink& sink;
  int rank = 0;
  std::vector<float> buffer = {};
  Status sunk = {};

  // `count` elements of `owner`'s, which lie at `own` there.
  Status Send(int owner, const void* own, std::int64_t count) {
    at::Tensor values;
    const float* floats = nullptr;
    if (rank == owner) {
      values = at::from_blob(const_cast<void*>(own), {count},
                             at::TensorOptions()
                                 .dtype(ScalarTypeOf(state.precision().master))
                                 .device(state.device()))
                   .to(at::kCPU, at::kFloat);
      floats = values.const_data_ptr<float>();
    }
    if (group != nullptr && owner != 0) {
      buffer.resize(kPieceElements);
      const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
      if (rank == owner) std::memcpy(buffer.data(), floats, bytes);
      MUSTER_RETURN_IF_ERROR(group->Broadcast(buffer.data(), bytes, owner)->Wait());
      floats = buffer.data();
    }
    if (rank == 0 && sunk.ok()) sunk = sink(floats, count);
    return OkStatus();
  }

  Status SendTensor(const FlatTensor& tensor, const FlatUnit& unit, const void* own) {
    const std::size_t size = ElementSize(state.precision().master);
    for (Interval rest = tensor.elements(); !rest.empty();) {
      const auto place = static_cast<int>(rest.begin / unit.shard_count);
      const Interval shard = unit.At(place);
      const Interval piece =
          Intersect(Intersect(rest, shard), {rest.begin, rest.begin + kPieceElements});
      const auto at = static_cast<std::size_t>(piece.begin - shard.begin) * size;
      MUSTER_RETURN_IF_ERROR(
          Send(unit.RankAt(place), static_cast<const char*>(own) + at, piece.count()));
      rest.begin = piece.end;
    }
    return OkStatus();
  }
};

}  // namespace

Status StreamTensors(const FlatLayout& layout, const ShardState& state, Communicator* shard_group,
                     const TensorSink& sink, const std::function<Status()>& after_unit) {
  Streamer streamer{.state = state,
                    .group = shard_group,
                    .sink = sink,
                    .rank = shard_group != nullptr ? shard_group->rank() : 0};
  for (std::size_t u = 0; u < layout.units().size(); ++u) {
    const FlatUnit& unit = layout.units()[u];
    for (const FlatTensor& tensor : unit.tensors) {
      MUSTER_RETURN_IF_ERROR(streamer.SendTensor(tensor, unit, state.units()[u].master));
    }
    MUSTER_RETURN_IF_ERROR(after_unit());
  }
  return streamer.sunk;
}

}  // namespace muster
