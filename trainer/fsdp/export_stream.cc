#include "trainer/fsdp/export_stream.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

constexpr std::int64_t kPieceElements = 1 << 20;

// A run of one tensor on one rank.
struct Piece {
  int owner = 0;
  const char* data = nullptr;  // valid on the owner
  std::int64_t count = 0;
};

class Streamer {
 public:
  Streamer(const ShardState& state, at::Device device, Communicator* group, const TensorSink& sink)
      : type_(state.precision().master),
        device_(device),
        group_(group),
        sink_(sink),
        buffer_(group == nullptr ? 0 : kPieceElements) {}

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  std::int64_t element() const { return static_cast<std::int64_t>(ElementSize(type_)); }

  Status Send(const Piece& piece) {
    at::Tensor values;
    if (rank() == piece.owner) {
      values = at::from_blob(const_cast<char*>(piece.data), {piece.count},
                             at::TensorOptions().dtype(ScalarTypeOf(type_)).device(device_))
                   .to(at::kCPU, at::kFloat);
    }
    const float* floats = values.defined() ? values.const_data_ptr<float>() : nullptr;
    if (group_ != nullptr && piece.owner != 0) {
      const std::size_t bytes = piece.count * sizeof(float);
      if (rank() == piece.owner) std::memcpy(buffer_.data(), floats, bytes);
      MUSTER_RETURN_IF_ERROR(group_->Broadcast(buffer_.data(), bytes, piece.owner)->Wait());
      floats = buffer_.data();
    }
    if (rank() == 0 && sink_status_.ok()) sink_status_ = sink_(floats, piece.count);
    return OkStatus();
  }

  const Status& sink_status() const { return sink_status_; }

 private:
  const ElementType type_;
  const at::Device device_;
  Communicator* const group_;
  const TensorSink& sink_;
  std::vector<float> buffer_;
  Status sink_status_;
};

Status StreamTensor(const FlatTensor& tensor, const UnitShard& shard, Streamer* streamer) {
  std::int64_t at = tensor.offset;
  const std::int64_t end = tensor.offset + tensor.count;
  while (at < end) {
    const auto owner = static_cast<int>(at / shard.count);
    const std::int64_t owner_end = (owner + 1) * shard.count;
    const std::int64_t count = std::min({end - at, owner_end - at, kPieceElements});
    const char* data = nullptr;
    if (owner == streamer->rank()) {
      data =
          static_cast<const char*>(shard.master) + (at - owner * shard.count) * streamer->element();
    }
    MUSTER_RETURN_IF_ERROR(streamer->Send({.owner = owner, .data = data, .count = count}));
    at += count;
  }
  return OkStatus();
}

}  // namespace

Status StreamTensors(const FlatLayout& layout, const ShardState& state, Communicator* shard_group,
                     const TensorSink& sink, const std::function<Status()>& after_unit) {
  Streamer streamer(state, state.device(), shard_group, sink);
  for (std::size_t u = 0; u < layout.units().size(); ++u) {
    for (const FlatTensor& tensor : layout.units()[u].tensors) {
      MUSTER_RETURN_IF_ERROR(StreamTensor(tensor, state.units()[u], &streamer));
    }
    MUSTER_RETURN_IF_ERROR(after_unit());
  }
  return streamer.sink_status();
}

}  // namespace muster
