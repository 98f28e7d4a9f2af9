#include "trainer/fsdp/load_weights.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "trainer/comm/long_work.h"
#include "trainer/core/flat_layout.h"
#include "trainer/state/checkpoint/element_convert.h"

namespace muster {
namespace {

constexpr std::int64_t kPieceElements = 1 << 20;  // 4 MiB

Status CheckShape(const SafetensorsModel& model, const std::string& tensor,
                  const std::vector<std::int64_t>& shape) {
  const TensorSpec* found = model.Find(tensor);
  if (found == nullptr) return NotFound("the model has no tensor " + tensor);
  if (found->shape == shape) return OkStatus();
  return FailedPrecondition("tensor " + tensor + " is " + ShapeText(found->shape) +
                            " in the model's files, its config.json makes it " + ShapeText(shape));
}

bool IsFinite(const float* values, std::int64_t count) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  bool finite = true;
  for (std::int64_t i = 0; i < count; ++i)
    finite &= (std::bit_cast<std::uint32_t>(values[i]) & kExponent) != kExponent;
  return finite;
}

// One weight that is not finite would make every loss so.
Status ReadFinite(const SafetensorsModel& model, const std::string& tensor, std::int64_t begin,
                  std::int64_t count, float* values) {
  MUSTER_RETURN_IF_ERROR(model.ReadFloats(tensor, begin, count, values));
  if (IsFinite(values, count)) return OkStatus();
  return DataLoss("tensor " + tensor + " of the model has a number that is not finite, in " +
                  model.FileOf(tensor));
}

Status LoadInterval(const SafetensorsModel& model, const ShardArray& array,
                    const TensorInterval& interval, const ArrayMemory& memory,
                    const std::function<void()>& on_read, std::vector<float>* buffer) {
  MUSTER_RETURN_IF_ERROR(CheckShape(model, interval.tensor, interval.shape));
  MUSTER_RETURN_IF_ERROR(
      model.PrepareGrownRows(interval.tensor, interval.begin + interval.count, on_read));
  const bool direct = array.type == ElementType::kFloat32 && !memory.write;
  if (!direct) buffer->resize(kPieceElements);
  for (std::int64_t at = 0; at < interval.count; at += kPieceElements) {
    const std::int64_t count = std::min(kPieceElements, interval.count - at);
    float* const values =
        direct ? static_cast<float*>(array.data) + interval.array_offset + at : buffer->data();
    MUSTER_RETURN_IF_ERROR(ReadFinite(model, interval.tensor, interval.begin + at, count, values));
    if (!direct) {
      PutElements(values, ElementType::kFloat32, count, array, interval.array_offset + at, memory);
    }
    if (on_read) on_read();
  }
  return OkStatus();
}

// Where this rank's part of each tensor lies.
using Intervals = std::multimap<std::string, std::pair<const ShardArray*, const TensorInterval*>>;

// Keeps what of a piece of `tensor` is this rank's.
void Keep(const Intervals& mine, const std::string& tensor, const Interval& piece,
          const float* values, const ArrayMemory& memory) {
  const auto [first, last] = mine.equal_range(tensor);
  for (auto each = first; each != last; ++each) {
    const auto& [array, interval] = each->second;
    const Interval part = Intersect(piece, interval->elements());
    if (part.empty()) continue;
    PutElements(values + (part.begin - piece.begin), ElementType::kFloat32, part.count(), *array,
                interval->array_offset + (part.begin - interval->begin), memory);
  }
}

class SharedLoad {
 public:
  SharedLoad(const SafetensorsModel* model, const std::vector<ShardArray>& arrays,
             Communicator& group, const ArrayMemory& memory, int reader)
      : model_(group.rank() == reader ? model : nullptr),
        group_(group),
        memory_(memory),
        reader_(reader),
        buffer_(kPieceElements) {
    for (const ShardArray& array : arrays) {
      for (const TensorInterval& interval : array.intervals) {
        mine_.emplace(interval.tensor, std::pair(&array, &interval));
      }
    }
  }

  Status Run(const FlatLayout& layout) {
    for (const FlatUnit& unit : layout.units()) {
      for (const FlatTensor& tensor : unit.tensors) MUSTER_RETURN_IF_ERROR(Share(tensor));
    }
    return AgreeOnRead();
  }

 private:
  // A reader that fails goes on sending, so that no rank waits for it.
  Status Share(const FlatTensor& tensor) {
    const std::string& name = tensor.spec.name;
    if (model_ != nullptr && read_.ok()) read_ = CheckShape(*model_, name, tensor.spec.shape);
    for (std::int64_t at = 0; at < tensor.count; at += kPieceElements) {
      const std::int64_t count = std::min(kPieceElements, tensor.count - at);
      if (model_ != nullptr && read_.ok()) {
        read_ = ReadFinite(*model_, name, at, count, buffer_.data());
      }
      MUSTER_RETURN_IF_ERROR(
          group_
              .Broadcast(buffer_.data(), static_cast<std::size_t>(count) * sizeof(float), reader_)
              ->Wait());
      Keep(mine_, name, {at, at + count}, buffer_.data(), memory_);
    }
    return OkStatus();
  }

  Status AgreeOnRead() {
    std::int64_t failed = read_.ok() ? 0 : 1;
    MUSTER_RETURN_IF_ERROR(
        group_.AllReduce(&failed, 1, ElementType::kInt64, ReduceOp::kMax)->Wait());
    if (failed == 0 || !read_.ok()) return read_;
    return Unavailable("rank " + std::to_string(reader_) +
                       " could not read the model for all; see its log");
  }

  const SafetensorsModel* const model_;  // null on all but the reader
  Communicator& group_;
  const ArrayMemory& memory_;
  const int reader_;
  Intervals mine_;
  std::vector<float> buffer_;
  Status read_;
};

}  // namespace

Status LoadIntervals(const SafetensorsModel& model, const std::vector<ShardArray>& arrays,
                     const ArrayMemory& memory, const std::function<void()>& on_read) {
  std::vector<float> buffer;
  for (const ShardArray& array : arrays) {
    for (const TensorInterval& interval : array.intervals) {
      MUSTER_RETURN_IF_ERROR(LoadInterval(model, array, interval, memory, on_read, &buffer));
    }
  }
  return OkStatus();
}

Status LoadIntervalsTogether(const SafetensorsModel* model, const FlatLayout& layout,
                             const std::vector<ShardArray>& arrays, Communicator& group,
                             const ArrayMemory& memory, const std::function<void()>& on_read) {
  constexpr std::int64_t kNobody = std::numeric_limits<std::int64_t>::max();
  std::int64_t reader = model != nullptr ? group.rank() : kNobody;
  std::int64_t without = model != nullptr ? 0 : 1;
  MUSTER_RETURN_IF_ERROR(group.AllReduce(&reader, 1, ElementType::kInt64, ReduceOp::kMin)->Wait());
  MUSTER_RETURN_IF_ERROR(group.AllReduce(&without, 1, ElementType::kInt64, ReduceOp::kMax)->Wait());
  if (reader == kNobody) return NotFound("no rank can open the model's files");
  if (without == 0) {
    LongWork reading(group);
    const Status mine = LoadIntervals(*model, arrays, memory, [&] {
      if (on_read) on_read();
      reading.Move();
    });
    const Status met = reading.Await();
    return mine.ok() ? met : mine;
  }
  return SharedLoad(model, arrays, group, memory, static_cast<int>(reader)).Run(layout);
}

}  // namespace muster
