#include "trainer/fsdp/adapter_weights.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "trainer/core/flat_layout.h"
#include "trainer/core/split_mix.h"
#include "trainer/formats/weights_fingerprint.h"
#include "trainer/fsdp/load_weights.h"
#include "trainer/model/adapters.h"
#include "trainer/model/peft.h"
#include "trainer/state/checkpoint/element_convert.h"

namespace muster {
namespace {

constexpr std::int64_t kPieceElements = 1 << 18;

using TensorsByName = std::map<std::string, UnitTensor>;

TensorsByName TensorsOf(const FlatLayout& layout) {
  TensorsByName tensors;
  for (const FlatUnit& unit : layout.units()) {
    for (const FlatTensor& tensor : unit.tensors) tensors[tensor.spec.name] = tensor.spec;
  }
  return tensors;
}

// Uniform in [-1, 1): number `place` of the stream that begins at the key.
double UniformAt(std::uint64_t key, std::int64_t place) {
  const std::uint64_t x = MixBits(key + kSplitMixStep * static_cast<std::uint64_t>(place + 1));
  return static_cast<double>(x >> 11) * 0x1.0p-52 - 1;
}

void FillInterval(const ShardArray& array, const TensorInterval& interval, const UnitTensor& tensor,
                  std::uint64_t seed, const ArrayMemory& memory) {
  const double bound =
      IsLoraA(tensor.role) ? 1 / std::sqrt(static_cast<double>(tensor.shape[1])) : 0;
  const std::uint64_t key = XXH3_64bits_withSeed(tensor.name.data(), tensor.name.size(), seed);
  std::vector<float> values;
  for (std::int64_t at = 0; at < interval.count; at += kPieceElements) {
    values.resize(static_cast<std::size_t>(std::min(kPieceElements, interval.count - at)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t place = interval.begin + at + static_cast<std::int64_t>(i);
      values[i] = bound == 0 ? 0.0f : static_cast<float>(bound * UniformAt(key, place));
    }
    PutElements(values.data(), ElementType::kFloat32, static_cast<std::int64_t>(values.size()),
                array, interval.array_offset + at, memory);
  }
}

// The arrays and tensors of a layout that `takes` says, under the names that it gives.
struct Selection {
  std::vector<ShardArray> arrays;
  std::vector<UnitSpec> units = {{.name = "trained", .tensors = {}}};
};
using Renaming = std::function<std::optional<std::string>(const UnitTensor& tensor)>;

Selection Select(const TrainedTensors& trained, const Renaming& name_of) {
  Selection selection;
  const TensorsByName tensors = TensorsOf(trained.layout);
  for (const auto& [name, tensor] : tensors) {
    const std::optional<std::string> other = name_of(tensor);
    if (!other) continue;
    UnitTensor& chosen = selection.units[0].tensors.emplace_back(tensor);
    chosen.name = *other;
    chosen.joined = false;
  }
  for (const ShardArray& array : trained.arrays) {
    ShardArray& chosen = selection.arrays.emplace_back(array);
    chosen.intervals.clear();
    for (TensorInterval interval : array.intervals) {
      const std::optional<std::string> other = name_of(tensors.at(interval.tensor));
      if (!other) continue;
      interval.tensor = *other;
      chosen.intervals.push_back(std::move(interval));
    }
  }
  return selection;
}

Status LoadSelection(const SafetensorsModel* model, const Selection& selection,
                     const TrainedTensors& trained, Communicator& group,
                     const std::function<void()>& on_read) {
  if (selection.units[0].tensors.empty()) return OkStatus();
  return LoadIntervalsTogether(model, FlatLayout(selection.units, 1), selection.arrays, group,
                               trained.memory, on_read);
}

// Whether a file holds the tensors of the selection, neither more nor fewer.
Status CheckTensors(const SafetensorsModel& file, const Selection& selection,
                    const std::string& path) {
  std::set<std::string> known;
  for (const UnitTensor& tensor : selection.units[0].tensors) {
    known.insert(tensor.name);
    const TensorSpec* found = file.Find(tensor.name);
    if (found == nullptr) return InvalidArgument(path + " has no tensor " + tensor.name);
    if (found->shape != tensor.shape) {
      return InvalidArgument(path + ": tensor " + tensor.name + " is " + ShapeText(found->shape) +
                             ", an adapter of this model has " + ShapeText(tensor.shape));
    }
  }
  for (const std::string& name : file.names()) {
    if (!known.contains(name))
      return InvalidArgument(path + ": tensor " + name + " belongs to nothing of this model");
  }
  return OkStatus();
}

Result<SafetensorsModel> OpenAdapter(const std::string& dir, const LoraSpec& spec,
                                     const TrainedTensors& trained, const Selection& selection) {
  std::vector<UnitTensor> tensors;
  for (const auto& [name, tensor] : TensorsOf(trained.layout)) tensors.push_back(tensor);
  MUSTER_RETURN_IF_ERROR(CheckAdapterConfig(dir, spec, tensors));
  const std::string path = dir + "/" + kAdapterWeights;
  MUSTER_ASSIGN_OR_RETURN(SafetensorsModel file, SafetensorsModel::OpenFile(path));
  MUSTER_RETURN_IF_ERROR(CheckTensors(file, selection, path));
  return file;
}

// A rank that has no directory gets the adapter from the others. One whose own copy does not fit
// ends the load for all: who is right, it or they?
Status AgreeOnCopies(const Status& mine, Communicator& group) {
  constexpr std::int64_t kNobody = std::numeric_limits<std::int64_t>::max();
  const bool fits = mine.ok() || mine.code() == StatusCode::kNotFound;
  std::int64_t first = fits ? kNobody : group.rank();
  MUSTER_RETURN_IF_ERROR(group.AllReduce(&first, 1, ElementType::kInt64, ReduceOp::kMin)->Wait());
  if (!fits) return mine;
  if (first == kNobody) return OkStatus();
  return Unavailable("rank " + std::to_string(first) +
                     " cannot use its copy of the adapter; see its log");
}

// Ranks that read copies of their own read the same values. The same on every rank.
Status AgreeOnValues(std::optional<std::uint64_t> mine, const std::string& dir,
                     Communicator& group) {
  constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::min();
  // The largest fingerprint and the largest complement belong together only if all are equal.
  const auto fingerprint = static_cast<std::int64_t>(mine.value_or(0));
  std::int64_t largest[2] = {mine ? fingerprint : kNothing, mine ? ~fingerprint : kNothing};
  MUSTER_RETURN_IF_ERROR(group.AllReduce(largest, 2, ElementType::kInt64, ReduceOp::kMax)->Wait());
  const bool none = largest[0] == kNothing && largest[1] == kNothing;
  if (none || largest[0] == ~largest[1]) return OkStatus();
  return FailedPrecondition("the adapter " + dir +
                            " is not the same on all ranks; copy one to every node");
}

}  // namespace

void InitAdapters(const TrainedTensors& trained, std::uint64_t seed) {
  const TensorsByName tensors = TensorsOf(trained.layout);
  for (const ShardArray& array : trained.arrays) {
    for (const TensorInterval& interval : array.intervals) {
      const UnitTensor& tensor = tensors.at(interval.tensor);
      if (IsAdapterTensor(tensor)) FillInterval(array, interval, tensor, seed, trained.memory);
    }
  }
}

Status LoadTrainedOfModel(const SafetensorsModel* model, const TrainedTensors& trained,
                          Communicator& group, const std::function<void()>& on_read) {
  const Selection selection = Select(trained, [](const UnitTensor& tensor) {
    return IsAdapterTensor(tensor) ? std::nullopt : std::optional(tensor.name);
  });
  return LoadSelection(model, selection, trained, group, on_read);
}

Status LoadAdapter(const std::string& dir, const LoraSpec& spec, const TrainedTensors& trained,
                   Communicator& group, const std::function<void()>& on_read) {
  const Selection selection = Select(
      trained, [&spec](const UnitTensor& tensor) { return std::optional(PeftName(tensor, spec)); });
  const Result<SafetensorsModel> file = OpenAdapter(dir, spec, trained, selection);
  std::optional<std::uint64_t> values;
  Status mine = file.status();
  if (mine.ok()) {
    const Result<std::uint64_t> fingerprint = FingerprintWeights(*file);
    mine = fingerprint.status();
    if (mine.ok()) values = *fingerprint;
  }
  MUSTER_RETURN_IF_ERROR(AgreeOnCopies(mine, group));
  MUSTER_RETURN_IF_ERROR(AgreeOnValues(values, dir, group));
  const Status loaded =
      LoadSelection(file.ok() ? &*file : nullptr, selection, trained, group, on_read);
  // This rank's own reason says more.
  return loaded.code() == StatusCode::kNotFound && !file.ok() ? file.status() : loaded;
}

}  // namespace muster
