#include "trainer/sharding/export_stream.h"

#include <algorithm>
#include <cstring>

namespace muster {
namespace {

constexpr std::int64_t kPieceElements = 1 << 20;

// A run of one tensor on one rank.
struct Piece {
  int owner = 0;
  const float* data = nullptr;  // valid on the owner
  std::int64_t count = 0;
};

class Streamer {
 public:
  Streamer(Communicator& communicator, const TensorSink& sink)
      : communicator_(communicator),
        sink_(sink),
        buffer_(kPieceElements * static_cast<std::int64_t>(sizeof(float))) {}

  Status Send(const Piece& piece) {
    const int rank = communicator_.rank();
    const float* values = piece.data;
    if (communicator_.size() > 1 && piece.owner != 0) {
      values = buffer_.floats();
      const std::size_t bytes = piece.count * sizeof(float);
      if (rank == piece.owner) std::memcpy(buffer_.data(), piece.data, bytes);
      MUSTER_RETURN_IF_ERROR(communicator_.Broadcast(buffer_.data(), bytes, piece.owner)->Wait());
    }
    if (rank == 0 && sink_status_.ok()) sink_status_ = sink_(values, piece.count);
    return OkStatus();
  }

  const Status& sink_status() const { return sink_status_; }

 private:
  Communicator& communicator_;
  const TensorSink& sink_;
  HostBuffer buffer_;
  Status sink_status_;
};

Status StreamTensor(const FlatTensor& tensor, const UnitShard& shard, int my_rank,
                    Streamer* streamer) {
  std::int64_t at = tensor.offset;
  const std::int64_t end = tensor.offset + tensor.count;
  while (at < end) {
    const auto owner = static_cast<int>(at / shard.count);
    const std::int64_t owner_end = (owner + 1) * shard.count;
    const std::int64_t count = std::min({end - at, owner_end - at, kPieceElements});
    const float* data = owner == my_rank ? shard.master + (at - owner * shard.count) : nullptr;
    MUSTER_RETURN_IF_ERROR(streamer->Send({.owner = owner, .data = data, .count = count}));
    at += count;
  }
  return OkStatus();
}

}  // namespace

Status LoadIntervals(const SafetensorsModel& model, const std::vector<ShardArray>& arrays) {
  for (const ShardArray& array : arrays) {
    for (const TensorInterval& interval : array.intervals) {
      MUSTER_RETURN_IF_ERROR(
          model.ReadFloats(interval.tensor, interval.begin, interval.count,
                           static_cast<float*>(array.data) + interval.array_offset));
    }
  }
  return OkStatus();
}

Status StreamTensors(const FlatLayout& layout, const ShardState& state, Communicator& communicator,
                     const TensorSink& sink) {
  Streamer streamer(communicator, sink);
  for (std::size_t u = 0; u < layout.units().size(); ++u) {
    for (const FlatTensor& tensor : layout.units()[u].tensors) {
      MUSTER_RETURN_IF_ERROR(
          StreamTensor(tensor, state.units()[u], communicator.rank(), &streamer));
    }
  }
  return streamer.sink_status();
}

}  // namespace muster
